/* Generated from constants.py by `python -m hardware.constants`: do not edit. */

#ifndef CODEL_CONSTANTS_P4
#define CODEL_CONSTANTS_P4

const bit<32> TARGET_NS = 5000000; /* TARGET, Listing 2 */
const bit<32> INTERVAL_NS = 100000000; /* INTERVAL, Listing 2 */
const bit<32> FIRST_DROP_COUNT = 2; /* the gap after the first drop is INTERVAL / sqrt(2), Listing 1 */
const bit<19> MTU_TOFINO_CELLS = 19; /* IFACE_MTU in cells of 80 bytes */
const bit<19> MTU_TOFINO2_CELLS = 9; /* IFACE_MTU in cells of 176 bytes */
const bit<19> MTU_PACKETS = 1; /* IFACE_MTU where packets are counted */
const bit<32> STATE_ENTRIES = 16384; /* 512 ports with 32 queues */
const bit<6> MATH_UNIT_SCALE_SHIFT = 20; /* the math unit multiplies its table by 2 to this power */
/* interval / sqrt(m/8) for m from 15 to 0, scaled; entries below m = 4 are never used */
#define MATH_UNIT_TABLE \
    70, 72, 75, 78, 81, 85, 90, 95, 102, 110, 121, 135, 0, 0, 0, 0
/* the math unit as a table: prefix of the count, and the gap in ns */
#define MATH_UNIT_ENTRIES \
    0x00000001 &&& 0xffffffff: root(99614720); \
    0x00000002 &&& 0xffffffff: root(70778880); \
    0x00000003 &&& 0xffffffff: root(57671680); \
    0x00000004 &&& 0xffffffff: root(49807360); \
    0x00000005 &&& 0xffffffff: root(44564480); \
    0x00000006 &&& 0xffffffff: root(40894464); \
    0x00000007 &&& 0xffffffff: root(37748736); \
    0x00000008 &&& 0xfffffffe: root(35389440); \
    0x0000000a &&& 0xfffffffe: root(31719424); \
    0x0000000c &&& 0xfffffffe: root(28835840); \
    0x0000000e &&& 0xfffffffe: root(26738688); \
    0x00000010 &&& 0xfffffffe: root(24903680); \
    0x00000012 &&& 0xfffffffe: root(23592960); \
    0x00000014 &&& 0xfffffffe: root(22282240); \
    0x00000016 &&& 0xfffffffe: root(21233664); \
    0x00000018 &&& 0xfffffffe: root(20447232); \
    0x0000001a &&& 0xfffffffe: root(19660800); \
    0x0000001c &&& 0xfffffffe: root(18874368); \
    0x0000001e &&& 0xfffffffe: root(18350080); \
    0x00000020 &&& 0xfffffff8: root(17694720); \
    0x00000028 &&& 0xfffffff8: root(15859712); \
    0x00000030 &&& 0xfffffff8: root(14417920); \
    0x00000038 &&& 0xfffffff8: root(13369344); \
    0x00000040 &&& 0xfffffff8: root(12451840); \
    0x00000048 &&& 0xfffffff8: root(11796480); \
    0x00000050 &&& 0xfffffff8: root(11141120); \
    0x00000058 &&& 0xfffffff8: root(10616832); \
    0x00000060 &&& 0xfffffff8: root(10223616); \
    0x00000068 &&& 0xfffffff8: root(9830400); \
    0x00000070 &&& 0xfffffff8: root(9437184); \
    0x00000078 &&& 0xfffffff8: root(9175040); \
    0x00000080 &&& 0xffffffe0: root(8847360); \
    0x000000a0 &&& 0xffffffe0: root(7929856); \
    0x000000c0 &&& 0xffffffe0: root(7208960); \
    0x000000e0 &&& 0xffffffe0: root(6684672); \
    0x00000100 &&& 0xffffffe0: root(6225920); \
    0x00000120 &&& 0xffffffe0: root(5898240); \
    0x00000140 &&& 0xffffffe0: root(5570560); \
    0x00000160 &&& 0xffffffe0: root(5308416); \
    0x00000180 &&& 0xffffffe0: root(5111808); \
    0x000001a0 &&& 0xffffffe0: root(4915200); \
    0x000001c0 &&& 0xffffffe0: root(4718592); \
    0x000001e0 &&& 0xffffffe0: root(4587520); \
    0x00000200 &&& 0xffffff80: root(4423680); \
    0x00000280 &&& 0xffffff80: root(3964928); \
    0x00000300 &&& 0xffffff80: root(3604480); \
    0x00000380 &&& 0xffffff80: root(3342336); \
    0x00000400 &&& 0xffffff80: root(3112960); \
    0x00000480 &&& 0xffffff80: root(2949120); \
    0x00000500 &&& 0xffffff80: root(2785280); \
    0x00000580 &&& 0xffffff80: root(2654208); \
    0x00000600 &&& 0xffffff80: root(2555904); \
    0x00000680 &&& 0xffffff80: root(2457600); \
    0x00000700 &&& 0xffffff80: root(2359296); \
    0x00000780 &&& 0xffffff80: root(2293760); \
    0x00000800 &&& 0xfffffe00: root(2211840); \
    0x00000a00 &&& 0xfffffe00: root(1982464); \
    0x00000c00 &&& 0xfffffe00: root(1802240); \
    0x00000e00 &&& 0xfffffe00: root(1671168); \
    0x00001000 &&& 0xfffffe00: root(1556480); \
    0x00001200 &&& 0xfffffe00: root(1474560); \
    0x00001400 &&& 0xfffffe00: root(1392640); \
    0x00001600 &&& 0xfffffe00: root(1327104); \
    0x00001800 &&& 0xfffffe00: root(1277952); \
    0x00001a00 &&& 0xfffffe00: root(1228800); \
    0x00001c00 &&& 0xfffffe00: root(1179648); \
    0x00001e00 &&& 0xfffffe00: root(1146880); \
    0x00002000 &&& 0xfffff800: root(1105920); \
    0x00002800 &&& 0xfffff800: root(991232); \
    0x00003000 &&& 0xfffff800: root(901120); \
    0x00003800 &&& 0xfffff800: root(835584); \
    0x00004000 &&& 0xfffff800: root(778240); \
    0x00004800 &&& 0xfffff800: root(737280); \
    0x00005000 &&& 0xfffff800: root(696320); \
    0x00005800 &&& 0xfffff800: root(663552); \
    0x00006000 &&& 0xfffff800: root(638976); \
    0x00006800 &&& 0xfffff800: root(614400); \
    0x00007000 &&& 0xfffff800: root(589824); \
    0x00007800 &&& 0xfffff800: root(573440); \
    0x00008000 &&& 0xffffe000: root(552960); \
    0x0000a000 &&& 0xffffe000: root(495616); \
    0x0000c000 &&& 0xffffe000: root(450560); \
    0x0000e000 &&& 0xffffe000: root(417792); \
    0x00010000 &&& 0xffffe000: root(389120); \
    0x00012000 &&& 0xffffe000: root(368640); \
    0x00014000 &&& 0xffffe000: root(348160); \
    0x00016000 &&& 0xffffe000: root(331776); \
    0x00018000 &&& 0xffffe000: root(319488); \
    0x0001a000 &&& 0xffffe000: root(307200); \
    0x0001c000 &&& 0xffffe000: root(294912); \
    0x0001e000 &&& 0xffffe000: root(286720); \
    0x00020000 &&& 0xffff8000: root(276480); \
    0x00028000 &&& 0xffff8000: root(247808); \
    0x00030000 &&& 0xffff8000: root(225280); \
    0x00038000 &&& 0xffff8000: root(208896); \
    0x00040000 &&& 0xffff8000: root(194560); \
    0x00048000 &&& 0xffff8000: root(184320); \
    0x00050000 &&& 0xffff8000: root(174080); \
    0x00058000 &&& 0xffff8000: root(165888); \
    0x00060000 &&& 0xffff8000: root(159744); \
    0x00068000 &&& 0xffff8000: root(153600); \
    0x00070000 &&& 0xffff8000: root(147456); \
    0x00078000 &&& 0xffff8000: root(143360); \
    0x00080000 &&& 0xfffe0000: root(138240); \
    0x000a0000 &&& 0xfffe0000: root(123904); \
    0x000c0000 &&& 0xfffe0000: root(112640); \
    0x000e0000 &&& 0xfffe0000: root(104448); \
    0x00100000 &&& 0xfffe0000: root(97280); \
    0x00120000 &&& 0xfffe0000: root(92160); \
    0x00140000 &&& 0xfffe0000: root(87040); \
    0x00160000 &&& 0xfffe0000: root(82944); \
    0x00180000 &&& 0xfffe0000: root(79872); \
    0x001a0000 &&& 0xfffe0000: root(76800); \
    0x001c0000 &&& 0xfffe0000: root(73728); \
    0x001e0000 &&& 0xfffe0000: root(71680); \
    0x00200000 &&& 0xfff80000: root(69120); \
    0x00280000 &&& 0xfff80000: root(61952); \
    0x00300000 &&& 0xfff80000: root(56320); \
    0x00380000 &&& 0xfff80000: root(52224); \
    0x00400000 &&& 0xfff80000: root(48640); \
    0x00480000 &&& 0xfff80000: root(46080); \
    0x00500000 &&& 0xfff80000: root(43520); \
    0x00580000 &&& 0xfff80000: root(41472); \
    0x00600000 &&& 0xfff80000: root(39936); \
    0x00680000 &&& 0xfff80000: root(38400); \
    0x00700000 &&& 0xfff80000: root(36864); \
    0x00780000 &&& 0xfff80000: root(35840); \
    0x00800000 &&& 0xffe00000: root(34560); \
    0x00a00000 &&& 0xffe00000: root(30976); \
    0x00c00000 &&& 0xffe00000: root(28160); \
    0x00e00000 &&& 0xffe00000: root(26112); \
    0x01000000 &&& 0xffe00000: root(24320); \
    0x01200000 &&& 0xffe00000: root(23040); \
    0x01400000 &&& 0xffe00000: root(21760); \
    0x01600000 &&& 0xffe00000: root(20736); \
    0x01800000 &&& 0xffe00000: root(19968); \
    0x01a00000 &&& 0xffe00000: root(19200); \
    0x01c00000 &&& 0xffe00000: root(18432); \
    0x01e00000 &&& 0xffe00000: root(17920); \
    0x02000000 &&& 0xff800000: root(17280); \
    0x02800000 &&& 0xff800000: root(15488); \
    0x03000000 &&& 0xff800000: root(14080); \
    0x03800000 &&& 0xff800000: root(13056); \
    0x04000000 &&& 0xff800000: root(12160); \
    0x04800000 &&& 0xff800000: root(11520); \
    0x05000000 &&& 0xff800000: root(10880); \
    0x05800000 &&& 0xff800000: root(10368); \
    0x06000000 &&& 0xff800000: root(9984); \
    0x06800000 &&& 0xff800000: root(9600); \
    0x07000000 &&& 0xff800000: root(9216); \
    0x07800000 &&& 0xff800000: root(8960); \
    0x08000000 &&& 0xfe000000: root(8640); \
    0x0a000000 &&& 0xfe000000: root(7744); \
    0x0c000000 &&& 0xfe000000: root(7040); \
    0x0e000000 &&& 0xfe000000: root(6528); \
    0x10000000 &&& 0xfe000000: root(6080); \
    0x12000000 &&& 0xfe000000: root(5760); \
    0x14000000 &&& 0xfe000000: root(5440); \
    0x16000000 &&& 0xfe000000: root(5184); \
    0x18000000 &&& 0xfe000000: root(4992); \
    0x1a000000 &&& 0xfe000000: root(4800); \
    0x1c000000 &&& 0xfe000000: root(4608); \
    0x1e000000 &&& 0xfe000000: root(4480); \
    0x20000000 &&& 0xf8000000: root(4320); \
    0x28000000 &&& 0xf8000000: root(3872); \
    0x30000000 &&& 0xf8000000: root(3520); \
    0x38000000 &&& 0xf8000000: root(3264); \
    0x40000000 &&& 0xf8000000: root(3040); \
    0x48000000 &&& 0xf8000000: root(2880); \
    0x50000000 &&& 0xf8000000: root(2720); \
    0x58000000 &&& 0xf8000000: root(2592); \
    0x60000000 &&& 0xf8000000: root(2496); \
    0x68000000 &&& 0xf8000000: root(2400); \
    0x70000000 &&& 0xf8000000: root(2304); \
    0x78000000 &&& 0xf8000000: root(2240); \
    0x80000000 &&& 0xe0000000: root(2160); \
    0xa0000000 &&& 0xe0000000: root(1936); \
    0xc0000000 &&& 0xe0000000: root(1760); \
    0xe0000000 &&& 0xe0000000: root(1632);
const bit<64> RESUME_NS = 1600000000; /* 16 INTERVAL, Listing 1, if_3 */
/* INTERVAL / sqrt(count), Listing 1: prefix of the count, and the gap in ns */
#define ROOT_ENTRIES \
    0x00000001 &&& 0xffffffff: root(100000000); \
    0x00000002 &&& 0xffffffff: root(70710678); \
    0x00000003 &&& 0xffffffff: root(57735026); \
    0x00000004 &&& 0xffffffff: root(50000000); \
    0x00000005 &&& 0xffffffff: root(44721359); \
    0x00000006 &&& 0xffffffff: root(40824829); \
    0x00000007 &&& 0xffffffff: root(37796447); \
    0x00000008 &&& 0xffffffff: root(35355339); \
    0x00000009 &&& 0xffffffff: root(33333333); \
    0x0000000a &&& 0xffffffff: root(31622776); \
    0x0000000b &&& 0xffffffff: root(30151134); \
    0x0000000c &&& 0xffffffff: root(28867513); \
    0x0000000d &&& 0xffffffff: root(27735009); \
    0x0000000e &&& 0xffffffff: root(26726124); \
    0x0000000f &&& 0xffffffff: root(25819888); \
    0x00000010 &&& 0xffffffff: root(25000000); \
    0x00000010 &&& 0xfffffff0: root(25000000); \
    0x00000020 &&& 0xffffffe0: root(17677669); \
    0x00000040 &&& 0xffffffc0: root(12500000); \
    0x00000080 &&& 0xffffff80: root(8838834); \
    0x00000100 &&& 0xffffff00: root(6250000); \
    0x00000200 &&& 0xfffffe00: root(4419417); \
    0x00000400 &&& 0xfffffc00: root(3125000); \
    0x00000800 &&& 0xfffff800: root(2209708); \
    0x00001000 &&& 0xfffff000: root(1562500); \
    0x00002000 &&& 0xffffe000: root(1104854); \
    0x00004000 &&& 0xffffc000: root(781250); \
    0x00008000 &&& 0xffff8000: root(552427); \
    0x00010000 &&& 0xffff0000: root(390625); \
    0x00020000 &&& 0xfffe0000: root(276213); \
    0x00040000 &&& 0xfffc0000: root(195312); \
    0x00080000 &&& 0xfff80000: root(138106); \
    0x00100000 &&& 0xfff00000: root(97656); \
    0x00200000 &&& 0xffe00000: root(69053); \
    0x00400000 &&& 0xffc00000: root(48828); \
    0x00800000 &&& 0xff800000: root(34526); \
    0x01000000 &&& 0xff000000: root(24414); \
    0x02000000 &&& 0xfe000000: root(17263); \
    0x04000000 &&& 0xfc000000: root(12207); \
    0x08000000 &&& 0xf8000000: root(8631); \
    0x10000000 &&& 0xf0000000: root(6103); \
    0x20000000 &&& 0xe0000000: root(4315); \
    0x40000000 &&& 0xc0000000: root(3051); \
    0x80000000 &&& 0x80000000: root(2157);

#endif
