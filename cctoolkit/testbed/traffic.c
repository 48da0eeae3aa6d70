/*
 * The traffic of a testbed run: sources, sinks and samples of TCP_INFO, in one process with one epoll loop.
 * traffic.py describes its input, output and usage.
 *
 * Nothing here depends on host time, addresses or the environment: with the same plan, a kernel in virtual time does
 * the same. System calls cost real time there, so there are few: sources write much at once, sinks of unlimited flows
 * are woken for up to 64 KiB and have the kernel discard it, and the kernel counts datagrams.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/gen_stats.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NEVER INT64_MAX
#define WORDS 32 /* most words of a controller's command */
#define POLL_NS 1000000 /* interval of checks for an answer in real time */
#define BUFFER_BYTES (1 << 29) /* doubled by the kernel: never a limit */
#define SINK_BYTES 65536 /* most bytes to read at once; see choose_lowat */

enum state { WAITING, CONNECTING, OPEN, CLOSING, DONE };
enum role { SOURCE, LISTENER, SINK, TIMER };

struct flow {
	/* the plan */
	uint32_t index;
	int udp, poisson, exponential, tos, has_source, has_sink;
	char cca[64], source[256], sink[256];
	struct sockaddr_storage from, to;
	int64_t start_ns, stop_ns, bytes, payload, on_ns, off_ns, window, unsent;
	double gap_ns; /* between packets that the application writes; 0: as fast as possible */
	uint64_t random;

	/* the progress */
	enum state state;
	int fd, listener, sink_fd;
	int begun, writing, stopped;
	int64_t toggle_ns, write_ns;
	int64_t base_ns; /* the application wrote base_packets until then, and one per gap since */
	double base_packets, fraction_ns;

	/* the results */
	int64_t established_ns, finished_ns, written, received, sent;
	int64_t review; /* at this many bytes received, choose the sink's wake-up anew */
	uint64_t udp_received;
	struct tcp_info info;
	uint16_t timeouts;
	int timeouts_known;
	char error[128];
};

/* One row of series.bin, as _SERIES in traffic.py. */
struct sample {
	int64_t ts_ns;
	uint64_t delivery, pacing, bytes_acked, bytes_sent, bytes_retrans;
	uint32_t index, cwnd, ssthresh, rtt_us, rttvar_us, min_rtt_us, retransmits, lost, delivered, delivered_ce;
	uint32_t unacked, mss, ca_state, window;
};

/* One row of queues.bin, as _QUEUES in traffic.py. */
struct queue_sample {
	int64_t ts_ns;
	uint64_t bytes, packets;
	uint32_t handle, parent, backlog_bytes, backlog_packets, drops, overlimits, requeues, xstats_bytes;
	char kind[16];
	unsigned char xstats[128];
};

/* Offset of tcpi_total_rto in tcp_info, new in Linux 6.7 and missing in older headers. */
#define TOTAL_RTO_AT (offsetof(struct tcp_info, tcpi_snd_wnd) + 3 * sizeof(uint32_t))

static struct flow *flows;
static size_t flow_count;
static const char *host; /* open only ends in the namespace of this name, and enter none */
static int64_t duration_ns, sample_ns, zero_mono_ns, zero_real_ns;
static int epoll_fd, timer_fd, home_fd = -1;
static FILE *series, *queues;
static volatile sig_atomic_t interrupted;

static char queue_netns[256], queue_device[IFNAMSIZ];
static int queue_fd = -1, queue_ifindex;

static struct {
	int64_t interval_ns;
	int spin;
	char directory[512];
	char *words[WORDS + 2];
	int64_t number; /* number of the expected answer; 0: none */
	pid_t child;
} control;

static void fatal(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fputs("traffic: ", stderr);
	vfprintf(stderr, format, list);
	fputc('\n', stderr);
	va_end(list);
	exit(1);
}

static int64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Nanoseconds since time 0. */
static int64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC) - zero_mono_ns;
}

static void on_signal(int number)
{
	(void)number;
	interrupted = 1;
}

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

/* Uniform in [0, 1) with 53 bits, by splitmix64 (Steele et al. 2014). */
static double uniform(struct flow *f)
{
	uint64_t z = f->random += UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	z ^= z >> 31;
	return (double)(z >> 11) / 9007199254740992.0;
}

/* Exponential with mean 1, by von Neumann's comparisons (1951): logarithms differ between C libraries. */
static double exponential(struct flow *f)
{
	for (double whole = 0;; whole++) {
		double first = uniform(f), last = first, next;
		int run = 1;

		while ((next = uniform(f)) < last) {
			last = next;
			run++;
		}
		if (run % 2)
			return whole + first;
	}
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

/* Get the value of a key in a line of key=value pairs. */
static void get_text(const char *line, const char *key, char *into, size_t room)
{
	size_t length = strlen(key), n;
	const char *at = line;

	while ((at = strchr(at, ' ')) != NULL) {
		at++;
		if (strncmp(at, key, length) == 0 && at[length] == '=') {
			at += length + 1;
			n = strcspn(at, " ");
			if (n >= room)
				fatal("plan: %s is too long in: %.60s", key, line);
			memcpy(into, at, n);
			into[n] = 0;
			return;
		}
	}
	fatal("plan: no %s in: %.60s", key, line);
}

static int64_t get_number(const char *line, const char *key)
{
	char text[64], *end;
	int64_t value;

	get_text(line, key, text, sizeof text);
	errno = 0;
	value = strtoll(text, &end, 10);
	if (*end || end == text || errno)
		fatal("plan: %s=%s is not a whole number", key, text);
	return value;
}

static void get_address(const char *line, const char *address_key, const char *port_key, struct sockaddr_storage *into)
{
	char text[64];
	int version = (int)get_number(line, "family");
	uint16_t port = htons((uint16_t)get_number(line, port_key));
	struct sockaddr_in *v4 = (struct sockaddr_in *)into;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)into;
	int good;

	get_text(line, address_key, text, sizeof text);
	memset(into, 0, sizeof *into);
	if (version == 4) {
		v4->sin_family = AF_INET;
		v4->sin_port = port;
		good = inet_pton(AF_INET, text, &v4->sin_addr);
	} else {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = port;
		good = inet_pton(AF_INET6, text, &v6->sin6_addr);
	}
	if (good != 1)
		fatal("plan: %s=%s is not an address", address_key, text);
}

static void read_flow(const char *line)
{
	struct flow *f;
	char gap[64];

	flows = realloc(flows, (flow_count + 1) * sizeof *flows);
	if (flows == NULL)
		fatal("out of memory");
	f = &flows[flow_count++];
	memset(f, 0, sizeof *f);
	f->index = (uint32_t)get_number(line, "index");
	f->udp = (int)get_number(line, "udp");
	f->poisson = (int)get_number(line, "poisson");
	f->exponential = (int)get_number(line, "exponential");
	f->tos = (int)get_number(line, "tos");
	get_text(line, "cca", f->cca, sizeof f->cca);
	get_text(line, "source", f->source, sizeof f->source);
	get_text(line, "sink", f->sink, sizeof f->sink);
	get_address(line, "from", "sport", &f->from);
	get_address(line, "to", "dport", &f->to);
	f->start_ns = get_number(line, "start_ns");
	f->stop_ns = get_number(line, "stop_ns");
	f->bytes = get_number(line, "bytes");
	f->payload = get_number(line, "payload");
	f->on_ns = get_number(line, "on_ns");
	f->off_ns = get_number(line, "off_ns");
	f->window = get_number(line, "window");
	f->unsent = get_number(line, "unsent");
	f->random = (uint64_t)get_number(line, "seed");
	get_text(line, "gap_ns", gap, sizeof gap);
	f->gap_ns = strtod(gap, NULL);
	if (f->udp && !(f->gap_ns > 0))
		fatal("flow %u: UDP needs a rate", f->index);
	if (f->stop_ns < 0)
		f->stop_ns = NEVER;
	if (f->bytes < 0)
		f->bytes = INT64_MAX;
	f->has_source = host == NULL || strcmp(f->source, host) == 0;
	f->has_sink = host == NULL || strcmp(f->sink, host) == 0;
	f->toggle_ns = f->write_ns = NEVER;
	f->established_ns = f->finished_ns = -1;
	f->fd = f->listener = f->sink_fd = -1;
}

static void read_plan(const char *path)
{
	FILE *file = fopen(path, "r");
	char *line = NULL, *word;
	size_t room = 0;
	ssize_t length;

	if (file == NULL)
		fatal("%s: %s", path, strerror(errno));
	if (getline(&line, &room, file) < 0 || strcmp(line, "traffic 1\n") != 0)
		fatal("%s: not a plan of this version", path);
	while ((length = getline(&line, &room, file)) > 0) {
		if (line[length - 1] == '\n')
			line[length - 1] = 0;
		if (strncmp(line, "flow ", 5) == 0) {
			read_flow(line);
		} else if (strncmp(line, "run ", 4) == 0) {
			duration_ns = get_number(line, "duration_ns");
			sample_ns = get_number(line, "sample_ns");
		} else if (strncmp(line, "queues ", 7) == 0) {
			get_text(line, "netns", queue_netns, sizeof queue_netns);
			get_text(line, "device", queue_device, sizeof queue_device);
		} else if (strncmp(line, "control ", 8) == 0) {
			control.interval_ns = get_number(line, "interval_ns");
			control.spin = (int)get_number(line, "spin");
			get_text(line, "directory", control.directory, sizeof control.directory);
		} else if (strncmp(line, "command ", 8) == 0) {
			int n = 0;

			for (word = strtok(line + 8, " "); word; word = strtok(NULL, " ")) {
				if (n == WORDS)
					fatal("plan: the command has more than %d words", WORDS);
				control.words[n++] = strdup(word);
			}
		} else {
			fatal("plan: not understood: %.60s", line);
		}
	}
	free(line);
	fclose(file);
	if (duration_ns <= 0)
		fatal("%s: no duration", path);
	if (control.interval_ns > 0 && control.words[0] == NULL)
		fatal("%s: control without a command", path);
}

/* ---- sockets ----------------------------------------------------------------------------------------------------- */

/* Enter a namespace: sockets belong to the one in which they were made, whoever uses them. */
static void enter(const char *netns, const char *who)
{
	static char here[256] = "-";
	int fd;

	if (host != NULL || strcmp(netns, here) == 0)
		return;
	if (home_fd < 0) {
		home_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
		if (home_fd < 0)
			fatal("%s: /proc/self/ns/net: %s", who, strerror(errno));
	}
	fd = strcmp(netns, "-") == 0 ? home_fd : open(netns, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fatal("%s: namespace %s: %s", who, netns, strerror(errno));
	if (setns(fd, CLONE_NEWNET) != 0)
		fatal("%s: cannot enter namespace %s: %s", who, netns, strerror(errno));
	if (fd != home_fd)
		close(fd);
	snprintf(here, sizeof here, "%s", netns);
}

static void set_option(struct flow *f, int fd, int level, int name, const void *value, socklen_t size, const char *what)
{
	if (setsockopt(fd, level, name, value, size) != 0)
		fatal("flow %u: %s: %s", f->index, what, strerror(errno));
}

static void set_int(struct flow *f, int fd, int level, int name, int value, const char *what)
{
	set_option(f, fd, level, name, &value, sizeof value, what);
}

/* As large as asked if privileged, else as large as the system allows. */
static void set_buffer(int fd, int forced, int ordinary)
{
	int bytes = BUFFER_BYTES;

	if (setsockopt(fd, SOL_SOCKET, forced, &bytes, sizeof bytes) != 0)
		(void)setsockopt(fd, SOL_SOCKET, ordinary, &bytes, sizeof bytes);
}

static socklen_t address_bytes(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static int open_socket(struct flow *f, const struct sockaddr_storage *address, const char *end)
{
	int v6 = address->ss_family == AF_INET6;
	int fd = socket(address->ss_family, (f->udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	char text[INET6_ADDRSTRLEN] = "";
	const void *octets = v6 ? (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr
				: (const void *)&((const struct sockaddr_in *)address)->sin_addr;

	if (fd < 0)
		fatal("flow %u: no socket: %s", f->index, strerror(errno));
	set_int(f, fd, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
	if (f->tos)
		set_int(f, fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_TCLASS : IP_TOS, f->tos, "TOS");
	if (!f->udp) {
		if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, f->cca, (socklen_t)strlen(f->cca)) != 0)
			fatal("flow %u: congestion control %s: %s", f->index, f->cca,
			      errno == ENOENT ? "this kernel does not have it" : strerror(errno));
		/* The kernel subtracts the 12 bytes of timestamps itself. */
		set_int(f, fd, IPPROTO_TCP, TCP_MAXSEG, (int)f->payload + 12, "maximum segment size");
	}
	if (bind(fd, (const struct sockaddr *)address, address_bytes(address)) != 0) {
		inet_ntop(address->ss_family, octets, text, sizeof text);
		fatal("flow %u: cannot use %s address %s: %s", f->index, end, text, strerror(errno));
	}
	return fd;
}

static void watch(int fd, uint32_t events, size_t number, enum role role)
{
	struct epoll_event event = { .events = events, .data.u64 = (uint64_t)number << 2 | role };

	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		fatal("epoll: %s", strerror(errno));
}

static void limit_window(struct flow *f, int fd)
{
	set_int(f, fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, f->window > INT32_MAX ? INT32_MAX : (int)f->window, "window");
}

static void open_sink(size_t number)
{
	struct flow *f = &flows[number];
	char who[32];

	snprintf(who, sizeof who, "flow %u", f->index);
	enter(f->sink, who);
	f->listener = open_socket(f, &f->to, "sink");
	if (f->udp) {
		/* Reject everything, which the kernel counts: no datagram costs a system call. */
		struct sock_filter nothing = { .code = BPF_RET | BPF_K, .k = 0 };
		struct sock_fprog program = { .len = 1, .filter = &nothing };

		set_option(f, f->listener, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program, "filter");
		return;
	}
	if (f->window > 0) {
		/* Otherwise the kernel tunes it: with full size from the start, it would acknowledge every packet. */
		set_buffer(f->listener, SO_RCVBUFFORCE, SO_RCVBUF);
		limit_window(f, f->listener);
	}
	if (listen(f->listener, 1) != 0)
		fatal("flow %u: cannot listen: %s", f->index, strerror(errno));
	watch(f->listener, EPOLLIN, number, LISTENER);
}

static void open_source(struct flow *f)
{
	char who[32];

	snprintf(who, sizeof who, "flow %u", f->index);
	enter(f->source, who);
	f->fd = open_socket(f, &f->from, "source");
	set_buffer(f->fd, SO_SNDBUFFORCE, SO_SNDBUF);
	if (f->udp)
		return;
	set_int(f, f->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, (int)f->unsent, "unsent");
	if (f->gap_ns > 0)
		set_int(f, f->fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

static void read_info(struct flow *f)
{
	union {
		struct tcp_info info;
		char room[512];
	} u;
	socklen_t size = sizeof u;

	memset(&u, 0, sizeof u);
	if (getsockopt(f->fd, IPPROTO_TCP, TCP_INFO, &u, &size) != 0)
		return;
	f->info = u.info;
	f->timeouts_known = size >= TOTAL_RTO_AT + sizeof f->timeouts;
	memcpy(&f->timeouts, u.room + TOTAL_RTO_AT, sizeof f->timeouts);
	/* The SYN and the FIN count as a byte each. */
	if (f->info.tcpi_bytes_acked > 0)
		f->info.tcpi_bytes_acked--;
	if (f->info.tcpi_bytes_acked > (uint64_t)f->written)
		f->info.tcpi_bytes_acked = (uint64_t)f->written;
	size = sizeof f->cca;
	if (f->state == DONE && getsockopt(f->fd, IPPROTO_TCP, TCP_CONGESTION, f->cca, &size) == 0)
		f->cca[size < sizeof f->cca ? size : sizeof f->cca - 1] = 0;
}

static void write_sample(FILE *file, struct flow *f, int64_t now)
{
	const struct tcp_info *i = &f->info;
	struct sample s = {
		.ts_ns = zero_real_ns + now,
		.delivery = i->tcpi_delivery_rate,
		.pacing = i->tcpi_pacing_rate,
		.bytes_acked = i->tcpi_bytes_acked,
		.bytes_sent = i->tcpi_bytes_sent,
		.bytes_retrans = i->tcpi_bytes_retrans,
		.index = f->index,
		.cwnd = i->tcpi_snd_cwnd,
		.ssthresh = i->tcpi_snd_ssthresh,
		.rtt_us = i->tcpi_rtt,
		.rttvar_us = i->tcpi_rttvar,
		.min_rtt_us = i->tcpi_min_rtt,
		.retransmits = i->tcpi_total_retrans,
		.lost = i->tcpi_lost,
		.delivered = i->tcpi_delivered,
		.delivered_ce = i->tcpi_delivered_ce,
		.unacked = i->tcpi_unacked,
		.mss = i->tcpi_snd_mss,
		.ca_state = i->tcpi_ca_state,
		.window = i->tcpi_snd_wnd,
	};

	fwrite(&s, sizeof s, 1, file);
}

static int has_connection(const struct flow *f)
{
	return !f->udp && (f->state == OPEN || f->state == CLOSING);
}

static void sample_flows(FILE *file, int64_t now)
{
	for (size_t n = 0; n < flow_count; n++) {
		if (has_connection(&flows[n])) {
			read_info(&flows[n]);
			write_sample(file, &flows[n], now);
		}
	}
}

static void open_queues(void)
{
	struct sockaddr_nl address = { .nl_family = AF_NETLINK };

	enter(queue_netns, "queues");
	queue_ifindex = (int)if_nametoindex(queue_device);
	queue_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (queue_ifindex == 0)
		fatal("queues: no device %s in namespace %s", queue_device, queue_netns);
	if (queue_fd < 0 || bind(queue_fd, (struct sockaddr *)&address, sizeof address) != 0)
		fatal("queues: netlink: %s", strerror(errno));
}

static void take_queue_statistics(struct queue_sample *s, struct rtattr *attribute, int length)
{
	for (; RTA_OK(attribute, length); attribute = RTA_NEXT(attribute, length)) {
		void *data = RTA_DATA(attribute);
		size_t size = RTA_PAYLOAD(attribute);
		struct gnet_stats_basic basic;
		struct gnet_stats_queue queue;

		switch (attribute->rta_type & NLA_TYPE_MASK) {
		case TCA_STATS_BASIC:
			memcpy(&basic, data, size < sizeof basic ? size : sizeof basic);
			s->bytes = basic.bytes;
			if (s->packets == 0)
				s->packets = basic.packets;
			break;
		case TCA_STATS_PKT64:
			memcpy(&s->packets, data, sizeof s->packets);
			break;
		case TCA_STATS_QUEUE:
			memcpy(&queue, data, sizeof queue);
			s->backlog_packets = queue.qlen;
			s->backlog_bytes = queue.backlog;
			s->drops = queue.drops;
			s->requeues = queue.requeues;
			s->overlimits = queue.overlimits;
			break;
		case TCA_STATS_APP:
			s->xstats_bytes = (uint32_t)(size < sizeof s->xstats ? size : sizeof s->xstats);
			memcpy(s->xstats, data, s->xstats_bytes);
			break;
		}
	}
}

static void take_queue(FILE *file, struct nlmsghdr *message, int64_t now)
{
	struct tcmsg *tc = NLMSG_DATA(message);
	int length = (int)message->nlmsg_len - (int)NLMSG_LENGTH(sizeof *tc);
	struct queue_sample s = { .ts_ns = zero_real_ns + now, .handle = tc->tcm_handle, .parent = tc->tcm_parent };

	if (message->nlmsg_type != RTM_NEWQDISC || tc->tcm_ifindex != queue_ifindex)
		return;
	for (struct rtattr *a = TCA_RTA(tc); RTA_OK(a, length); a = RTA_NEXT(a, length)) {
		if ((a->rta_type & NLA_TYPE_MASK) == TCA_KIND)
			snprintf(s.kind, sizeof s.kind, "%s", (const char *)RTA_DATA(a));
		else if ((a->rta_type & NLA_TYPE_MASK) == TCA_STATS2)
			take_queue_statistics(&s, RTA_DATA(a), (int)RTA_PAYLOAD(a));
	}
	fwrite(&s, sizeof s, 1, file);
}

static void sample_queues(FILE *file, int64_t now)
{
	static char buffer[65536] __attribute__((aligned(NLMSG_ALIGNTO)));
	struct {
		struct nlmsghdr head;
		struct tcmsg tc;
	} request = {
		.head = { .nlmsg_len = sizeof request, .nlmsg_type = RTM_GETQDISC, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.tc = { .tcm_family = AF_UNSPEC, .tcm_ifindex = queue_ifindex },
	};

	if (send(queue_fd, &request, sizeof request, 0) < 0)
		fatal("queues: netlink: %s", strerror(errno));
	for (;;) {
		ssize_t length = recv(queue_fd, buffer, sizeof buffer, 0);

		if (length < 0 && errno == EINTR)
			continue;
		if (length < 0)
			fatal("queues: netlink: %s", strerror(errno));
		for (struct nlmsghdr *m = (struct nlmsghdr *)buffer; NLMSG_OK(m, length); m = NLMSG_NEXT(m, length)) {
			if (m->nlmsg_type == NLMSG_DONE)
				return;
			if (m->nlmsg_type == NLMSG_ERROR)
				fatal("queues: netlink refuses: %s", strerror(-((struct nlmsgerr *)NLMSG_DATA(m))->error));
			take_queue(file, m, now);
		}
	}
}

/* Number of datagrams received: the socket's filter rejected them all. */
static void count_datagrams(struct flow *f)
{
	uint32_t memory[SK_MEMINFO_VARS];
	socklen_t size = sizeof memory;

	memset(memory, 0, sizeof memory);
	(void)getsockopt(f->listener, SOL_SOCKET, SO_MEMINFO, memory, &size);
	f->udp_received = memory[SK_MEMINFO_DROPS];
}

/* What a controller gets besides open connections: UDP flows, with packets sent and received. */
static void sample_datagrams(FILE *file, int64_t now)
{
	for (size_t n = 0; n < flow_count; n++) {
		struct flow *f = &flows[n];

		if (!f->udp || f->state != OPEN)
			continue;
		if (f->listener >= 0)
			count_datagrams(f);
		f->info.tcpi_bytes_sent = (uint64_t)f->written;
		f->info.tcpi_delivered = (uint32_t)f->udp_received;
		write_sample(file, f, now);
	}
}

/* Report the progress of the run in nanoseconds since time 0, at most once a second. */
static void tell_progress(int64_t now)
{
	static int64_t next;
	FILE *file;

	if (now < next || (file = fopen("progress", "w")) == NULL)
		return;
	fprintf(file, "%" PRId64 "\n", now);
	fclose(file);
	next = now + 1000000000;
}

static void take_samples(int64_t now)
{
	tell_progress(now);
	sample_flows(series, now);
	if (queue_fd >= 0)
		sample_queues(queues, now);
}

/* ---- flows ------------------------------------------------------------------------------------------------------- */

static int64_t period(struct flow *f, int64_t mean_ns)
{
	return f->exponential ? (int64_t)(exponential(f) * (double)mean_ns) : mean_ns;
}

/* The end of a TCP flow, successful or not: take a last sample and close the socket. */
static void finish(struct flow *f, int64_t now, int error)
{
	int connected = has_connection(f);

	f->state = DONE;
	f->writing = 0;
	f->toggle_ns = f->write_ns = NEVER;
	read_info(f);
	if (connected)
		write_sample(series, f, now);
	if (error) {
		snprintf(f->error, sizeof f->error, "%s", strerror(error));
		fprintf(stderr, "traffic: flow %u: at %.6f s: %s\n", f->index, (double)now * 1e-9, f->error);
	}
	close(f->fd);
	f->fd = -1;
}

/* Payload that the application has written by now if nothing blocks it. */
static int64_t wanted_bytes(const struct flow *f, int64_t now)
{
	double packets;

	if (f->gap_ns == 0)
		return f->writing ? f->bytes : f->written;
	packets = f->base_packets;
	if (f->writing)
		packets += (double)(now - f->base_ns) / f->gap_ns + 1e-6;
	if (packets >= (double)f->bytes / (double)f->payload)
		return f->bytes;
	return (int64_t)packets * f->payload;
}

/* Write as much as the socket accepts; edge-triggered EPOLLOUT says when it accepts more. */
static void pump(struct flow *f, int64_t now)
{
	static const char zeros[1 << 20];
	int64_t left, wanted;

	if (f->state != OPEN || f->udp)
		return;
	wanted = wanted_bytes(f, now);
	while ((left = wanted - f->written) > 0) {
		size_t ask = left < (int64_t)sizeof zeros ? (size_t)left : sizeof zeros;
		ssize_t n = send(f->fd, zeros, ask, MSG_NOSIGNAL);

		if (n < 0) {
			if (errno != EAGAIN && errno != EINTR)
				finish(f, now, errno);
			return;
		}
		f->written += n;
		if ((size_t)n < ask)
			break; /* the kernel will report when there is room */
	}
	if (f->written >= f->bytes || (f->stopped && f->written >= wanted)) {
		f->state = CLOSING;
		f->toggle_ns = f->write_ns = NEVER;
		shutdown(f->fd, SHUT_WR);
	} else if (f->writing && f->gap_ns > 0) {
		double next = (double)(f->written / f->payload + 1) - f->base_packets;
		int64_t at = f->base_ns + (int64_t)(next * f->gap_ns) + 1;

		f->write_ns = left > 0 ? NEVER : at > now ? at : now + 1;
	}
}

static void send_datagram(struct flow *f, int64_t now)
{
	static const char zeros[65536];
	int64_t left = f->bytes - f->written;
	size_t size = (size_t)(left < f->payload ? left : f->payload);

	/* A datagram that the host cannot send is lost, like any other. */
	(void)sendto(f->fd, zeros, size, MSG_NOSIGNAL, (struct sockaddr *)&f->to, address_bytes(&f->to));
	f->written += (int64_t)size;
	f->sent++;
	f->finished_ns = now;
	if (f->written >= f->bytes) {
		f->state = DONE;
		f->toggle_ns = f->write_ns = NEVER;
	} else {
		/* Relative to when it was due, not to now: a late process does not lower the rate. */
		double gap = f->gap_ns * (f->poisson ? exponential(f) : 1.0) + f->fraction_ns;

		f->fraction_ns = gap - (double)(int64_t)gap;
		f->write_ns += (int64_t)gap;
	}
}

static void begin(struct flow *f, size_t number, int64_t now)
{
	f->begun = f->writing = 1;
	if (f->on_ns > 0)
		f->toggle_ns = f->start_ns + period(f, f->on_ns);
	if (f->udp) {
		f->state = OPEN;
		f->write_ns = f->start_ns;
		return;
	}
	f->state = CONNECTING;
	if (connect(f->fd, (struct sockaddr *)&f->to, address_bytes(&f->to)) != 0 && errno != EINPROGRESS)
		finish(f, now, errno);
	else
		watch(f->fd, EPOLLOUT | EPOLLRDHUP | EPOLLET, number, SOURCE);
}

static void toggle(struct flow *f, int64_t now)
{
	if (f->writing) {
		if (f->gap_ns > 0)
			f->base_packets += (double)(f->toggle_ns - f->base_ns) / f->gap_ns + 1e-6;
		f->writing = 0;
		f->write_ns = NEVER;
		f->toggle_ns += period(f, f->off_ns);
	} else {
		f->writing = 1;
		f->base_ns = f->toggle_ns;
		if (f->udp)
			f->write_ns = f->toggle_ns;
		f->toggle_ns += period(f, f->on_ns);
	}
	pump(f, now);
}

static void stop(struct flow *f, int64_t now)
{
	if (f->writing && f->gap_ns > 0)
		f->base_packets += (double)(f->stop_ns - f->base_ns) / f->gap_ns + 1e-6;
	f->writing = 0;
	f->stopped = 1;
	f->toggle_ns = f->write_ns = NEVER;
	if (f->udp)
		f->state = DONE;
	else if (f->state == CONNECTING)
		finish(f, now, 0);
	else
		pump(f, now);
}

/* Time of the next event of a flow. */
static int64_t next_ns(const struct flow *f)
{
	int64_t next = NEVER;

	if (f->state == WAITING)
		return f->has_source ? f->start_ns : NEVER;
	if (f->state == CLOSING || f->state == DONE)
		return NEVER;
	if (!f->stopped)
		next = f->stop_ns;
	if (f->toggle_ns < next)
		next = f->toggle_ns;
	if (f->write_ns < next)
		next = f->write_ns;
	return next;
}

static void act(size_t number, int64_t now)
{
	struct flow *f = &flows[number];
	int64_t due;

	while ((due = next_ns(f)) <= now) {
		if (f->state == WAITING)
			begin(f, number, now);
		else if (!f->stopped && f->stop_ns == due)
			stop(f, now);
		else if (f->toggle_ns == due)
			toggle(f, now);
		else if (f->udp)
			send_datagram(f, now);
		else
			pump(f, now);
	}
}

static void on_source(struct flow *f, uint32_t events, int64_t now)
{
	int error = 0;
	socklen_t size = sizeof error;

	if (f->state == DONE)
		return;
	if (events & (EPOLLERR | EPOLLHUP)) {
		getsockopt(f->fd, SOL_SOCKET, SO_ERROR, &error, &size);
		if (error) {
			finish(f, now, error);
			return;
		}
	}
	if (f->state == CONNECTING && (events & EPOLLOUT)) {
		f->state = OPEN;
		f->established_ns = f->base_ns = now;
		f->base_packets = 0;
	}
	if (f->state == CLOSING && (events & EPOLLRDHUP)) {
		f->finished_ns = now;
		finish(f, now, 0);
	} else if (events & EPOLLRDHUP) {
		finish(f, now, ECONNABORTED);
	} else {
		pump(f, now);
	}
}

static void on_listener(size_t number)
{
	struct flow *f = &flows[number];

	f->sink_fd = accept4(f->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (f->sink_fd < 0)
		return;
	close(f->listener);
	f->listener = -1;
	watch(f->sink_fd, EPOLLIN, number, SINK);
}

/*
 * A sink that wakes up for every packet would be most of the work. It wakes up for a 64th of what it has read in a
 * round trip. With an eighth of the receive window the kernel no longer saw round trips as they are, and tuned the
 * window to half of what it is for iperf3: the sender met it in slow start and lost a third of the packets. A flow that
 * writes at a rate, or that has a small window, is read at once: the kernel acknowledges single packets when the
 * application has read them.
 */
static void choose_lowat(struct flow *f)
{
	struct tcp_info info;
	socklen_t size = sizeof info;
	int bytes;

	f->review = 2 * f->received;
	if (getsockopt(f->sink_fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
		return;
	bytes = (int)(info.tcpi_rcv_space / 64);
	set_int(f, f->sink_fd, SOL_SOCKET, SO_RCVLOWAT, bytes < SINK_BYTES ? bytes : SINK_BYTES, "SO_RCVLOWAT");
}

static void read_sink(struct flow *f)
{
	ssize_t n = recv(f->sink_fd, NULL, BUFFER_BYTES, MSG_TRUNC | MSG_DONTWAIT);

	if (n > 0) {
		f->received += n;
		if (f->window > 0) /* Linux (6.6 and newer) forgets it at the first full segment */
			limit_window(f, f->sink_fd);
		else if (f->gap_ns == 0 && f->received >= f->review)
			choose_lowat(f);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		close(f->sink_fd);
		f->sink_fd = -1;
	}
}

/* ---- control ----------------------------------------------------------------------------------------------------- */

static void control_path(char *into, size_t room, const char *name, int64_t number)
{
	if (snprintf(into, room, "%s/%s.%" PRId64, control.directory, name, number) >= (int)room)
		fatal("control: the name of the directory is too long");
}

static FILE *create(const char *path, const char *magic, int64_t real_ns)
{
	FILE *file = fopen(path, "w");

	if (file == NULL)
		fatal("%s: %s", path, strerror(errno));
	fwrite(magic, 8, 1, file);
	fwrite(&real_ns, sizeof real_ns, 1, file);
	return file;
}

/* Close a finished file and rename it to its final name. */
static void publish(FILE *file, const char *temporary, const char *path)
{
	if (fclose(file) != 0 || rename(temporary, path) != 0)
		fatal("%s: %s", path, strerror(errno));
}

static void ask_controller(int64_t now)
{
	char temporary[600], path[600];
	FILE *file;

	control.number = now / control.interval_ns;
	snprintf(temporary, sizeof temporary, "%s/status.tmp", control.directory);
	if (queue_fd >= 0) {
		control_path(path, sizeof path, "queues", control.number);
		file = create(temporary, "cctkqds1", zero_real_ns + now);
		sample_queues(file, now);
		publish(file, temporary, path);
	}
	control_path(path, sizeof path, "status", control.number);
	file = create(temporary, "cctktcp1", zero_real_ns + now);
	sample_flows(file, now);
	sample_datagrams(file, now);
	publish(file, temporary, path);
}

/*
 * Wait for the answer, in virtual time. This only reads the directory: looking up a name would create and free kernel
 * objects, and depending on their number, clocks would differ by some hundred nanoseconds.
 */
static void await_answer(void)
{
	static DIR *directory;
	char name[64];
	struct dirent *entry;

	if (directory == NULL)
		directory = opendir(control.directory);
	if (directory == NULL)
		fatal("%s: %s", control.directory, strerror(errno));
	snprintf(name, sizeof name, "answer.%" PRId64, control.number);
	for (;;) {
		rewinddir(directory);
		while ((entry = readdir(directory)) != NULL)
			if (strcmp(entry->d_name, name) == 0)
				return;
		if (interrupted)
			return;
	}
}

/* Check once for the answer, or for the end of its command. */
static void hear_controller(int64_t now)
{
	static char path[600];
	struct stat about;
	int status, last = 0;

	control_path(path, sizeof path, "answer", control.number);
	if (control.child == 0) {
		if (stat(path, &about) != 0)
			return;
		if (about.st_size > 0) {
			extern char **environ;

			while (control.words[last] && control.words[last] != path)
				last++;
			control.words[last] = path;
			status = posix_spawnp(&control.child, control.words[0], NULL, NULL, control.words, environ);
			if (status != 0)
				fatal("control: %s: %s", control.words[0], strerror(status));
		}
	}
	if (control.child != 0) {
		if (waitpid(control.child, &status, control.spin ? 0 : WNOHANG) != control.child)
			return;
		control.child = 0;
		if (status != 0)
			fatal("control: at %.6f s: %s did not accept the answer (status %d)", (double)now * 1e-9,
			      control.words[0], WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	}
	unlink(path);
	control_path(path, sizeof path, "status", control.number);
	unlink(path);
	control_path(path, sizeof path, "queues", control.number);
	unlink(path);
	control.number = 0;
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static void arm(int64_t at_ns)
{
	static int64_t armed = NEVER;
	int64_t mono = zero_mono_ns + at_ns;
	struct itimerspec spec = { .it_value = { .tv_sec = mono / 1000000000, .tv_nsec = mono % 1000000000 } };

	if (at_ns == armed)
		return;
	armed = at_ns;
	timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void run(void)
{
	int64_t now, next, next_sample = sample_ns ? sample_ns : NEVER;
	int64_t next_control = control.interval_ns ? control.interval_ns : NEVER, look = NEVER;
	struct epoll_event events[64];

	while (!interrupted) {
		now = now_ns();
		if (now >= duration_ns)
			break;
		next = duration_ns;
		for (size_t n = 0; n < flow_count; n++) {
			act(n, now);
			if (next_ns(&flows[n]) < next)
				next = next_ns(&flows[n]);
		}
		if (next_sample <= now) {
			take_samples(now);
			next_sample += ((now - next_sample) / sample_ns + 1) * sample_ns;
		}
		if (next_control <= now && control.number == 0) {
			ask_controller(now);
			next_control += ((now - next_control) / control.interval_ns + 1) * control.interval_ns;
			look = now;
		}
		if (look <= now) {
			if (control.spin)
				await_answer();
			hear_controller(now);
			look = control.number ? now + POLL_NS : NEVER;
		}
		if (next_sample < next)
			next = next_sample;
		if (next_control < next && control.number == 0)
			next = next_control;
		if (look < next)
			next = look;
		arm(next);

		int count = epoll_wait(epoll_fd, events, 64, -1);

		now = now_ns();
		for (int i = 0; i < count; i++) {
			size_t number = (size_t)(events[i].data.u64 >> 2);

			switch ((enum role)(events[i].data.u64 & 3)) {
			case SOURCE:
				on_source(&flows[number], events[i].events, now);
				break;
			case LISTENER:
				on_listener(number);
				break;
			case SINK:
				read_sink(&flows[number]);
				break;
			case TIMER:
				break;
			}
		}
	}
}

static void end_run(int64_t now)
{
	struct linger abort_now = { .l_onoff = 1, .l_linger = 0 };

	take_samples(now);
	for (size_t n = 0; n < flow_count; n++) {
		struct flow *f = &flows[n];

		if (!f->udp && f->fd >= 0) {
			f->state = DONE;
			read_info(f);
			(void)setsockopt(f->fd, SOL_SOCKET, SO_LINGER, &abort_now, sizeof abort_now);
		}
		if (f->udp && f->listener >= 0)
			count_datagrams(f);
		while (f->sink_fd >= 0) {
			int64_t before = f->received;

			read_sink(f);
			if (f->received == before)
				break;
		}
		if (f->sink_fd >= 0)
			(void)setsockopt(f->sink_fd, SOL_SOCKET, SO_LINGER, &abort_now, sizeof abort_now);
	}
}

static void put(FILE *file, int known, int64_t value)
{
	if (known)
		fprintf(file, ",%" PRId64, value);
	else
		fputc(',', file);
}

static void write_flow(FILE *file, const struct flow *f)
{
	const struct tcp_info *i = &f->info;
	int begun = f->begun, tcp = begun && !f->udp;
	int64_t udp_bytes = (int64_t)f->udp_received * f->payload;

	if (udp_bytes > f->bytes)
		udp_bytes = f->bytes; /* the last datagram was short */
	fprintf(file, "%u,%s", f->index, f->cca);
	put(file, begun, zero_real_ns + f->start_ns);
	put(file, f->established_ns >= 0, zero_real_ns + f->established_ns);
	put(file, f->finished_ns >= 0, zero_real_ns + f->finished_ns);
	put(file, begun, f->written);
	put(file, tcp, (int64_t)i->tcpi_bytes_acked);
	put(file, f->has_sink, f->udp ? udp_bytes : f->received);
	put(file, begun, f->udp ? f->sent : (int64_t)i->tcpi_data_segs_out);
	put(file, f->udp ? f->has_sink : tcp, f->udp ? (int64_t)f->udp_received : (int64_t)i->tcpi_delivered);
	put(file, tcp, i->tcpi_total_retrans);
	put(file, tcp && f->timeouts_known, f->timeouts);
	put(file, tcp && i->tcpi_min_rtt != UINT32_MAX, i->tcpi_min_rtt);
	put(file, tcp && i->tcpi_rtt > 0, i->tcpi_rtt);
	put(file, tcp, i->tcpi_delivered_ce);
	fprintf(file, ",%s\n", f->error);
}

static void write_results(int64_t now)
{
	FILE *file = fopen("flows.csv.tmp", "w");

	if (file == NULL)
		fatal("flows.csv: %s", strerror(errno));
	fprintf(file, "# start_ns=%" PRId64 " end_ns=%" PRId64 "\n", zero_real_ns, zero_real_ns + now);
	fputs("index,cca,start_ns,established_ns,finished_ns,written_bytes,acked_bytes,received_bytes,sent_packets,"
	      "received_packets,retransmits,timeouts,min_rtt_us,rtt_us,delivered_ce,error\n", file);
	for (size_t n = 0; n < flow_count; n++)
		write_flow(file, &flows[n]);
	publish(series, "series.bin.tmp", "series.bin");
	if (queues)
		publish(queues, "queues.bin.tmp", "queues.bin");
	publish(file, "flows.csv.tmp", "flows.csv"); /* written last: once it appears, everything is complete */
}

int main(int argc, char **argv)
{
	struct rlimit files;
	struct sigaction action = { .sa_handler = on_signal };
	int64_t epoch = 0, now;

	for (int i = 3; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--epoch") == 0)
			epoch = strtoll(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--host") == 0)
			host = argv[i + 1];
		else
			fatal("no such option: %s", argv[i]);
	}
	if (argc < 3 || argc % 2 == 0)
		fatal("usage: traffic PLAN DIRECTORY [--epoch NS] [--host NAME]");
	read_plan(argv[1]);
	if (chdir(argv[2]) != 0)
		fatal("%s: %s", argv[2], strerror(errno));
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);

	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (epoll_fd < 0 || timer_fd < 0)
		fatal("epoll: %s", strerror(errno));
	watch(timer_fd, EPOLLIN | EPOLLET, 0, TIMER);
	for (size_t n = 0; n < flow_count; n++)
		if (flows[n].has_sink)
			open_sink(n);
	for (size_t n = 0; n < flow_count; n++)
		if (flows[n].has_source)
			open_source(&flows[n]);
	if (queue_device[0] && (host == NULL || strcmp(host, queue_netns) == 0))
		open_queues();
	enter("-", "control");

	zero_mono_ns = clock_ns(CLOCK_MONOTONIC);
	zero_real_ns = clock_ns(CLOCK_REALTIME);
	if (epoch > zero_real_ns) {
		zero_mono_ns += epoch - zero_real_ns;
		zero_real_ns = epoch;
	}
	series = create("series.bin.tmp", "cctktcp1", zero_real_ns);
	if (queue_fd >= 0)
		queues = create("queues.bin.tmp", "cctkqds1", zero_real_ns);

	run();
	now = now_ns();
	end_run(now);
	write_results(now);
	if (control.interval_ns) {
		char path[600];

		snprintf(path, sizeof path, "%s/end", control.directory);
		fclose(fopen(path, "w"));
	}
	return 0;
}
