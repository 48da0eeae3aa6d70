/* The calls that bmv2.py makes to BMv2's control port, with their numbers and names on the wire (behavioral-model
   1.15). The port multiplexes two services, "standard" and "simple_switch". */

enum BmMatchParamType { EXACT = 0, LPM = 1, TERNARY = 2, VALID = 3, RANGE = 4 }

struct BmMatchParamExact { 1: binary key }
struct BmMatchParamLPM { 1: binary key, 2: i32 prefix_length }
struct BmMatchParamTernary { 1: binary key, 2: binary mask }
struct BmMatchParamRange { 1: binary start, 2: binary end_ }

struct BmMatchParam {
  1: BmMatchParamType type,
  2: optional BmMatchParamExact exact,
  3: optional BmMatchParamLPM lpm,
  4: optional BmMatchParamTernary ternary,
  6: optional BmMatchParamRange range
}

struct BmAddEntryOptions { 1: optional i32 priority }
struct BmMtEntry { 3: i32 entry_handle }
struct BmCounterValue { 1: i64 bytes, 2: i64 packets }

/* Error codes; bmv2.py has their texts. */
exception InvalidTableOperation { 1: i32 code }
exception InvalidRegisterOperation { 1: i32 code }
exception InvalidCounterOperation { 1: i32 code }
exception InvalidLearnOperation { 1: i32 code }
exception InvalidCrcOperation { 1: i32 code }

struct BmCrc32Config {
  1: i32 polynomial,
  2: i32 initial_remainder,
  3: i32 final_xor_value,
  4: bool data_reflected,
  5: bool remainder_reflected
}

service Standard {
  string bm_get_config(),

  i32 bm_mt_add_entry(1: i32 cxt_id, 2: string table_name, 3: list<BmMatchParam> match_key, 4: string action_name,
    5: list<binary> action_data, 6: BmAddEntryOptions options) throws (1: InvalidTableOperation ouch),
  void bm_mt_modify_entry(1: i32 cxt_id, 2: string table_name, 3: i32 entry_handle, 4: string action_name,
    5: list<binary> action_data) throws (1: InvalidTableOperation ouch),
  void bm_mt_delete_entry(1: i32 cxt_id, 2: string table_name, 3: i32 entry_handle)
    throws (1: InvalidTableOperation ouch),
  BmMtEntry bm_mt_get_entry_from_key(1: i32 cxt_id, 2: string table_name, 3: list<BmMatchParam> match_key,
    4: BmAddEntryOptions options) throws (1: InvalidTableOperation ouch),
  void bm_mt_clear_entries(1: i32 cxt_id, 2: string table_name, 3: bool reset_default_entry)
    throws (1: InvalidTableOperation ouch),
  void bm_mt_set_default_action(1: i32 cxt_id, 2: string table_name, 3: string action_name,
    4: list<binary> action_data) throws (1: InvalidTableOperation ouch),

  list<i64> bm_register_read_all(1: i32 cxt_id, 2: string register_array_name)
    throws (1: InvalidRegisterOperation ouch),
  i64 bm_register_read(1: i32 cxt_id, 2: string register_array_name, 3: i32 idx)
    throws (1: InvalidRegisterOperation ouch),
  void bm_register_write(1: i32 cxt_id, 2: string register_array_name, 3: i32 index, 4: i64 value)
    throws (1: InvalidRegisterOperation ouch),
  void bm_register_write_range(1: i32 cxt_id, 2: string register_array_name, 3: i32 start_index, 4: i32 end_index,
    5: i64 value) throws (1: InvalidRegisterOperation ouch),

  BmCounterValue bm_counter_read(1: i32 cxt_id, 2: string counter_name, 3: i32 index)
    throws (1: InvalidCounterOperation ouch),

  void bm_set_crc32_custom_parameters(1: i32 cxt_id, 2: string calc_name, 3: BmCrc32Config crc32_config)
    throws (1: InvalidCrcOperation ouch),

  void bm_learning_ack_buffer(1: i32 cxt_id, 2: i32 list_id, 3: i64 buffer_id) throws (1: InvalidLearnOperation ouch)
}

struct MirroringSessionConfig { 1: optional i32 port, 2: optional i32 mgid }

service SimpleSwitch {
  void mirroring_session_add(1: i32 mirror_id, 2: MirroringSessionConfig config),
  i32 set_egress_queue_depth(1: i32 port_num, 2: i32 depth_pkts),
  i32 set_egress_queue_rate(1: i32 port_num, 2: i64 rate_pps),
  i32 set_egress_priority_queue_depth(1: i32 port_num, 2: i32 priority, 3: i32 depth_pkts),
  i32 set_egress_priority_queue_rate(1: i32 port_num, 2: i32 priority, 3: i64 rate_pps)
}
