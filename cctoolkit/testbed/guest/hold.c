/*
 * Delay packets on the way back, on kernels without netem.
 *
 *     hold NETNS (NETNS DELAY_NS)...
 *
 * Each namespace gets a TUN device `hold`. Packets sent into that of a later namespace leave that of the first one
 * DELAY_NS later, in order. Prints "ready" on standard output, and ends when standard input closes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

struct packet {
	struct packet *next;
	int64_t due_ns;
	size_t length;
	char data[];
};

struct side {
	int fd;
	int64_t delay_ns;
	struct packet *first, **end;
};

static void fatal(const char *what)
{
	fprintf(stderr, "hold: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int open_device(const char *netns)
{
	struct ifreq request = { .ifr_name = "hold", .ifr_flags = IFF_TUN | IFF_NO_PI };
	int space = open(netns, O_RDONLY | O_CLOEXEC), fd;

	if (space < 0 || setns(space, CLONE_NEWNET) != 0)
		fatal(netns);
	close(space);
	fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0)
		fatal("/dev/net/tun");
	return fd;
}

static void take(struct side *side)
{
	static char buffer[65536];
	ssize_t length;

	while ((length = read(side->fd, buffer, sizeof buffer)) > 0) {
		struct packet *p = malloc(sizeof *p + (size_t)length);

		if (p == NULL)
			fatal("memory");
		p->next = NULL;
		p->due_ns = now_ns() + side->delay_ns;
		p->length = (size_t)length;
		memcpy(p->data, buffer, p->length);
		*side->end = p;
		side->end = &p->next;
	}
}

/* Send the packets that are due; return the time of the next one. */
static int64_t give(struct side *side, int out, int64_t now)
{
	struct packet *p;

	while ((p = side->first) != NULL && p->due_ns <= now) {
		if (write(out, p->data, p->length) < 0 && errno != EAGAIN && errno != EINVAL)
			fatal("packet");
		side->first = p->next;
		if (side->first == NULL)
			side->end = &side->first;
		free(p);
	}
	return p == NULL ? INT64_MAX : p->due_ns;
}

int main(int argc, char **argv)
{
	int count = (argc - 2) / 2, out, poll_fd = epoll_create1(EPOLL_CLOEXEC);
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	struct side *sides = calloc((size_t)count + 1, sizeof *sides);
	struct epoll_event event = { .events = EPOLLIN }, events[64];
	struct sched_param first = { .sched_priority = 10 };

	if (argc < 4 || argc % 2 || sides == NULL || poll_fd < 0 || timer < 0) {
		fputs("usage: hold NETNS (NETNS DELAY_NS)...\n", stderr);
		return 1;
	}
	(void)sched_setscheduler(0, SCHED_FIFO, &first); /* helps on a busy machine, but optional */
	out = open_device(argv[1]);
	for (int i = 0; i < count; i++) {
		sides[i].fd = open_device(argv[2 + 2 * i]);
		sides[i].delay_ns = strtoll(argv[3 + 2 * i], NULL, 10);
		sides[i].end = &sides[i].first;
		event.data.ptr = &sides[i];
		if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, sides[i].fd, &event) != 0)
			fatal("epoll");
	}
	event.data.ptr = NULL;
	epoll_ctl(poll_fd, EPOLL_CTL_ADD, timer, &event);
	event.data.ptr = stdin;
	epoll_ctl(poll_fd, EPOLL_CTL_ADD, 0, &event);
	puts("ready");
	fflush(stdout);
	for (;;) {
		int n = epoll_wait(poll_fd, events, 64, -1);
		int64_t now, next = INT64_MAX;
		uint64_t expirations;
		char line[64];

		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr == stdin) {
				if (read(0, line, sizeof line) <= 0)
					return 0;
			} else if (events[i].data.ptr == NULL) {
				(void)!read(timer, &expirations, sizeof expirations);
			} else {
				take(events[i].data.ptr);
			}
		}
		now = now_ns();
		for (int i = 0; i < count; i++) {
			int64_t due = give(&sides[i], out, now);

			if (due < next)
				next = due;
		}
		if (next != INT64_MAX) {
			struct itimerspec at = { .it_value = { next / 1000000000, next % 1000000000 } };

			timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
		}
	}
}
