/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector's user side: loads and attaches collector.bpf.o, and obeys commands on standard input.
 *
 *   collector OBJECT key=value ...
 *
 *   slot_ns=N                          slot length
 *   sampling=all|first|P               which data packets to sample; P is a probability
 *   flows=N cells_bytes=N              room for monitored flows, and for unread cells (a power of two)
 *   ingress=IF egress=IF               interfaces; any number of each
 *   after=queue|tc                     where outgoing packets are seen (data at the egress tap, acknowledgements at the
 *                                      ingress tap): behind the queueing discipline, or at tc's egress hook
 *
 * Each command is a line, and is answered by a frame: struct reply, followed by its number of bytes.
 *
 *   add NUMBER SRC SPORT DST DPORT     monitor one direction of a connection
 *   remove SRC SPORT DST DPORT         stop monitoring it
 *   heavy BYTES                        end the epoch, and report the flows with at least BYTES in it: a struct heavy
 *                                      each; 0: stop counting
 *   read                               read the cells: a struct reading, then a struct cell each
 *   rtts                               how far away the ends of flows are: a struct tap_rtts each
 *
 * Nothing is pinned: programs, maps and links live as long as this process, which ends with its standard input.
 * Exit status: 0, or 1 with one line on standard error.
 */
#define _GNU_SOURCE
#include "collector.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/membarrier.h>
#include <net/if.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_LINKS 256
/* linux/bpf.h of Linux 6.6; older headers lack them */
#define TCX_INGRESS 46
#define TCX_EGRESS 47

struct reply {
	__s32 error; /* of errno, or 0 */
	__u32 bytes;
};
struct reading {
	__s64 clock_ns; /* the cells include everything before this, except packets still being processed */
	struct counters hooks[HOOKS];
};
struct heavy {
	struct flow_key key;
	__u64 bytes;
};
struct tap_rtts {
	__u32 number;
	__u32 samples[ENDS];
	__u32 padding;
	__s64 shortest_ns[ENDS];
};

static char warning[512]; /* libbpf's first warning */

static void die(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fputs("collector: ", stderr);
	vfprintf(stderr, format, arguments);
	fputs("\n", stderr);
	exit(1);
}

static int on_libbpf_message(enum libbpf_print_level level, const char *format, va_list arguments)
{
	if (getenv("CCTOOLKIT_LIBBPF_LOG"))
		return vfprintf(stderr, format, arguments);
	if (level == LIBBPF_WARN && !warning[0]) /* the first one tells the cause, the others are consequences */
		vsnprintf(warning, sizeof(warning), format, arguments);
	warning[strcspn(warning, "\n")] = 0;
	return 0;
}

static __s64 now_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static __s64 tai_offset_ns(void)
{
	__s64 offset = now_ns(CLOCK_TAI) - now_ns(CLOCK_REALTIME);
	return (offset + (offset < 0 ? -500000000 : 500000000)) / 1000000000 * 1000000000; /* whole seconds */
}

/* ---- loading ------------------------------------------------------------------------------------------------------ */

static struct bpf_object *object;
static struct variables *variables;
static int links[MAX_LINKS], n_links;
static struct {
	__u32 index;
	const char *name;
} interfaces[2 * MAX_LINKS];
static int n_interfaces;

static int map_fd(const char *name)
{
	return bpf_object__find_map_fd_by_name(object, name);
}

static struct bpf_map *map_ending(const char *suffix)
{
	struct bpf_map *map;
	bpf_object__for_each_map(map, object)
	{
		const char *name = bpf_map__name(map);
		if (strlen(name) >= strlen(suffix) && !strcmp(name + strlen(name) - strlen(suffix), suffix))
			return map;
	}
	die("no %s in the object", suffix);
	return NULL;
}

static int program_fd(const char *name)
{
	return bpf_program__fd(bpf_object__find_program_by_name(object, name));
}

static int is_ethernet(const char *name)
{
	struct ifreq request = {0};
	int socket_fd = socket(AF_INET, SOCK_DGRAM, 0);
	strncpy(request.ifr_name, name, IF_NAMESIZE - 1);
	if (socket_fd < 0 || ioctl(socket_fd, SIOCGIFHWADDR, &request))
		die("%s: cannot find the type of the interface (%s)", name, strerror(errno));
	close(socket_fd);
	int type = request.ifr_hwaddr.sa_family;
	if (type == 1 || type == 772) /* Ethernet, loopback */
		return 1;
	if (type == 65534 || type == 768 || type == 769 || type == 776 || type == 778) /* TUN, IP-in-IP and GRE tunnels */
		return 0;
	die("%s: interfaces of type %d are not supported", name, type);
	return 0;
}

static void attach_tcx(const char *program, const char *name, int index, int where)
{
	int link = n_links < MAX_LINKS ? bpf_link_create(program_fd(program), index, where, NULL) : -ENOSPC;
	if (link < 0)
		die("%s: cannot attach (%s)%s", name, strerror(-link),
		    link == -EINVAL ? ": tcx needs Linux 6.6 or newer" : "");
	links[n_links++] = link;
}

/* A packet socket gets every frame of the interface; this filter keeps none. */
static void attach_socket(const char *program, const char *name, int index)
{
	struct sockaddr_ll where = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = index};
	int filter = program_fd(program), fd = socket(AF_PACKET, SOCK_RAW, 0);
	if (fd < 0 || n_links == MAX_LINKS || setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &filter, sizeof(filter)) ||
	    bind(fd, (struct sockaddr *)&where, sizeof(where)))
		die("%s: cannot listen (%s)", name, strerror(errno));
	links[n_links++] = fd;
}

static void attach(char **ingress, int n_ingress, char **egress, int n_egress, int sees_acks, int behind_queue)
{
	for (int i = 0; i < n_ingress + n_egress; i++) {
		int is_ingress = i < n_ingress;
		const char *name = is_ingress ? ingress[i] : egress[i - n_ingress];
		__u32 index = if_nametoindex(name), before = 0;
		if (!index)
			die("%s: no such interface", name);
		interfaces[n_interfaces].index = index;
		interfaces[n_interfaces++].name = name;
		bpf_map_lookup_elem(map_fd("links"), &index, &before);
		__u32 link = before | (is_ethernet(name) ? HAS_ETHERNET : 0) | (is_ingress ? IS_INGRESS : IS_EGRESS);
		int error = bpf_map_update_elem(map_fd("links"), &index, &link, BPF_ANY);
		if (error)
			die("%s: %s", name, strerror(-error));
		if (is_ingress)
			attach_tcx("tc_ingress", name, index, TCX_INGRESS);
		if (is_ingress ? !sees_acks : sees_acks && before & IS_INGRESS)
			continue; /* outgoing packets do not matter, or are already seen */
		if (behind_queue)
			attach_socket("left_queue", name, index);
		else
			attach_tcx("tc_egress", name, index, TCX_EGRESS);
	}
}

static void load(int argc, char **argv)
{
	char *ingress[MAX_LINKS], *egress[MAX_LINKS];
	int n_ingress = 0, n_egress = 0, behind_queue = 1;
	__u32 flows = 1024, cells_bytes = 1 << 24;
	struct settings settings = {.slot_ns = 1000000};

	libbpf_set_print(on_libbpf_message);
	object = bpf_object__open_file(argv[1], NULL);
	if (!object)
		die("%s: %s", argv[1], warning[0] ? warning : strerror(errno));
	for (int i = 2; i < argc; i++) {
		char *value = strchr(argv[i], '=');
		if (!value)
			die("%s: not key=value", argv[i]);
		*value++ = 0;
		if (!strcmp(argv[i], "slot_ns")) {
			settings.slot_ns = strtoll(value, NULL, 10);
		} else if (!strcmp(argv[i], "sampling")) {
			settings.sampling = !strcmp(value, "all") ? SAMPLE_ALL
					    : !strcmp(value, "first") ? SAMPLE_FIRST
								      : SAMPLE_RANDOM;
			settings.sample_below = strtod(value, NULL) * 4294967296.0;
		} else if (!strcmp(argv[i], "flows")) {
			flows = strtoul(value, NULL, 10);
		} else if (!strcmp(argv[i], "cells_bytes")) {
			cells_bytes = strtoul(value, NULL, 10);
		} else if (!strcmp(argv[i], "after")) {
			behind_queue = strcmp(value, "tc") != 0;
		} else if (!strcmp(argv[i], "ingress") && n_ingress < MAX_LINKS) {
			ingress[n_ingress++] = value;
		} else if (!strcmp(argv[i], "egress") && n_egress < MAX_LINKS) {
			egress[n_egress++] = value;
		} else {
			die("%s: unknown option, or too many interfaces", argv[i]);
		}
	}
	bpf_map__set_max_entries(bpf_object__find_map_by_name(object, "monitored"), flows);
	bpf_map__set_max_entries(bpf_object__find_map_by_name(object, "cells"), cells_bytes);
	int error = bpf_map__set_initial_value(map_ending(".rodata"), &settings, sizeof(settings));
	if (error)
		die("settings: %s", strerror(-error));
	int sees_acks = settings.sampling == SAMPLE_ALL, sees_leave = n_egress || sees_acks;
	bpf_program__set_autoload(bpf_object__find_program_by_name(object, "left_queue"), sees_leave && behind_queue);
	bpf_program__set_autoload(bpf_object__find_program_by_name(object, "tc_egress"), sees_leave && !behind_queue);
	error = bpf_object__load(object);
	if (error)
		die("the kernel refuses the program (%s)%s%s", strerror(-error), warning[0] ? ": " : "", warning);
	struct bpf_map *bss = map_ending(".bss");
	if (bpf_map__value_size(bss) != sizeof(*variables))
		die("the object file has a different version");
	variables = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(bss), 0);
	if (variables == MAP_FAILED)
		die("cannot map the program's variables: %s", strerror(errno));
	variables->tai_offset_ns = tai_offset_ns();
	attach(ingress, n_ingress, egress, n_egress, sees_acks, behind_queue);
}

/* ---- answers ------------------------------------------------------------------------------------------------------ */

static char *buffer;
static size_t used, room;

static void append(const void *data, size_t bytes)
{
	if (used + bytes > room) {
		room = 2 * (used + bytes);
		buffer = realloc(buffer, room);
		if (!buffer)
			die("out of memory");
	}
	memcpy(buffer + used, data, bytes);
	used += bytes;
}

static void answer(int error)
{
	struct reply *reply = (struct reply *)buffer;
	reply->error = error;
	reply->bytes = used - sizeof(*reply);
	for (size_t at = 0; at < used;) {
		ssize_t n = write(1, buffer + at, used - at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			exit(0); /* the reader is gone */
		at += n;
	}
}

static int take_cell(void *context, void *data, size_t bytes)
{
	(void)context;
	append(data, bytes);
	return 0;
}

/* Hooks vanish silently with their interface, or when it moves to another namespace. */
static void check_interfaces(void)
{
	char name[IF_NAMESIZE];
	for (int i = 0; i < n_interfaces; i++)
		if (!if_indextoname(interfaces[i].index, name))
			die("%s: the interface was removed", interfaces[i].name);
}

static int read_cells(struct ring_buffer *ring)
{
	unsigned char frame[64] = {0};
	struct reading reading = {.clock_ns = now_ns(CLOCK_REALTIME)};
	LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = frame, .data_size_in = sizeof(frame), .repeat = 1);
	int n_cpus = libbpf_num_possible_cpus();
	struct counters counts[n_cpus];

	check_interfaces();
	variables->tai_offset_ns = tai_offset_ns();
	int error = bpf_prog_test_run_opts(program_fd("flush"), &run);
	if (error)
		return error;
	append(&reading, sizeof(reading));
	error = ring_buffer__consume(ring);
	if (error < 0)
		return error;
	for (__u32 hook = 0; hook < HOOKS; hook++) {
		error = bpf_map_lookup_elem(map_fd("counts"), &hook, counts);
		if (error)
			return error;
		for (int cpu = 0; cpu < n_cpus; cpu++)
			for (size_t i = 0; i < sizeof(*counts) / 8; i++)
				((__u64 *)&reading.hooks[hook])[i] += ((__u64 *)&counts[cpu])[i];
	}
	memcpy(buffer + sizeof(struct reply), &reading, sizeof(reading));
	return 0;
}

static int read_heavy(__u64 least)
{
	__u64 epoch = variables->epoch & 0xffff;
	struct heavy one;
	int fd = map_fd("candidates"), error;
	void *before = NULL;

	variables->heavy_bytes = least;
	variables->epoch++;
	while (!(error = bpf_map_get_next_key(fd, before, &one.key))) {
		__u64 value;
		if (!bpf_map_lookup_elem(fd, &one.key, &value) && value >> EPOCH_SHIFT == epoch) {
			one.bytes = value & BYTES_MASK;
			append(&one, sizeof(one));
		}
		before = &one.key;
	}
	return error == -ENOENT ? 0 : error;
}

static int read_rtts(void)
{
	struct flow_key key;
	struct flow flow;
	int fd = map_fd("monitored"), error;
	void *before = NULL;

	while (!(error = bpf_map_get_next_key(fd, before, &key))) {
		if (!bpf_map_lookup_elem(fd, &key, &flow)) {
			struct tap_rtts one = {.number = flow.number};
			for (int end = 0; end < ENDS; end++) {
				one.samples[end] = flow.ends[end].samples;
				one.shortest_ns[end] = flow.ends[end].shortest_ns;
			}
			append(&one, sizeof(one));
		}
		before = &key;
	}
	return error == -ENOENT ? 0 : error;
}

static int parse_address(const char *text, struct flow_key *key, __u8 *to)
{
	int family = strchr(text, ':') ? AF_INET6 : AF_INET;
	key->version = family == AF_INET6 ? 6 : 4;
	return inet_pton(family, text, to) == 1;
}

static int parse_key(const char *text, struct flow_key *key)
{
	char src[64], dst[64];
	unsigned int sport, dport;
	memset(key, 0, sizeof(*key));
	if (sscanf(text, "%63s %u %63s %u", src, &sport, dst, &dport) != 4 || sport > 65535 || dport > 65535)
		return -EINVAL;
	if (!parse_address(src, key, key->src) || !parse_address(dst, key, key->dst))
		return -EINVAL;
	key->sport = htons(sport);
	key->dport = htons(dport);
	return 0;
}

static int has_removed; /* since the last grace period */

static int remove_flow(const struct flow_key *key)
{
	has_removed = 1;
	return bpf_map_delete_elem(map_fd("monitored"), key);
}

/* The map reuses a removed flow's memory at once, but programs that found that flow earlier may still write into it.
 * This command of membarrier waits until they have ended (an RCU grace period). */
static int add_flow(const struct flow_key *key, const struct flow *flow)
{
	if (has_removed && syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0))
		usleep(50000); /* kernels with nohz_full lack it; no packet takes that long */
	has_removed = 0;
	return bpf_map_update_elem(map_fd("monitored"), key, flow, BPF_NOEXIST);
}

static int obey(char *line, struct ring_buffer *ring)
{
	struct flow_key key;
	struct flow flow = {0};
	int at = 0, error;

	if (!strcmp(line, "read"))
		return read_cells(ring);
	if (!strcmp(line, "rtts"))
		return read_rtts();
	if (!strncmp(line, "heavy ", 6))
		return read_heavy(strtoull(line + 6, NULL, 10));
	if (sscanf(line, "add %u %n", &flow.number, &at) == 1 && at) {
		error = parse_key(line + at, &key);
		return error ? error : add_flow(&key, &flow);
	}
	if (!strncmp(line, "remove ", 7)) {
		error = parse_key(line + 7, &key);
		return error ? error : remove_flow(&key);
	}
	return -EINVAL;
}

int main(int argc, char **argv)
{
	char line[256];
	struct reply none = {0};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN); /* left to the parent */
	signal(SIGPIPE, SIG_IGN);
	if (argc < 2)
		die("collector OBJECT key=value ...");
	load(argc, argv);
	struct ring_buffer *ring = ring_buffer__new(map_fd("cells"), take_cell, NULL, NULL);
	if (!ring)
		die("cannot open the ring buffer of cells: %s", strerror(errno));
	append(&none, sizeof(none));
	answer(0); /* ready */
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		used = 0;
		append(&none, sizeof(none));
		int error = obey(line, ring);
		if (error < 0)
			used = sizeof(none);
		answer(error < 0 ? -error : 0);
	}
	return 0;
}
