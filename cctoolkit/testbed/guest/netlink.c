/*
 * Send traffic control requests to the kernel that this machine's tc is too old for.
 *
 *     netlink DEVICE FILE
 *
 * FILE holds consecutive netlink messages, each a struct nlmsghdr, a struct tcmsg and attributes; the number of the
 * device is filled in. If the kernel refuses one, its error is printed and the exit status is 1.
 */
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fail(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	return 1;
}

/* The kernel's explanation of an error, if there is one. */
static const char *explanation(struct nlmsghdr *answer)
{
	struct nlmsgerr *error = NLMSG_DATA(answer);
	size_t skip = NLMSG_ALIGN(sizeof *error);
	struct nlattr *a;
	size_t left;

	if (!(answer->nlmsg_flags & NLM_F_ACK_TLVS))
		return NULL;
	if (!(answer->nlmsg_flags & NLM_F_CAPPED))
		skip += NLMSG_ALIGN(error->msg.nlmsg_len) - NLMSG_ALIGN(sizeof error->msg);
	a = (struct nlattr *)((char *)error + skip);
	left = answer->nlmsg_len - NLMSG_HDRLEN - skip;
	for (; left >= NLA_HDRLEN && a->nla_len >= NLA_HDRLEN && a->nla_len <= left;
	     left -= NLA_ALIGN(a->nla_len), a = (struct nlattr *)((char *)a + NLA_ALIGN(a->nla_len)))
		if ((a->nla_type & NLA_TYPE_MASK) == NLMSGERR_ATTR_MSG)
			return (char *)a + NLA_HDRLEN;
	return NULL;
}

int main(int argc, char **argv)
{
	static char request[65536] __attribute__((aligned(NLMSG_ALIGNTO)));
	static char answer[65536] __attribute__((aligned(NLMSG_ALIGNTO)));
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), one = 1;
	struct nlmsghdr *message = (struct nlmsghdr *)request, *reply = (struct nlmsghdr *)answer;
	unsigned index;
	FILE *file;

	if (argc != 3)
		return fail("usage", "netlink DEVICE FILE");
	if (fd < 0)
		return fail("netlink", strerror(errno));
	(void)setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof one);
	index = if_nametoindex(argv[1]);
	if (index == 0)
		return fail(argv[1], strerror(errno));
	file = fopen(argv[2], "r");
	if (file == NULL)
		return fail(argv[2], strerror(errno));
	while (fread(message, sizeof *message, 1, file) == 1) {
		size_t rest = message->nlmsg_len - sizeof *message;
		struct nlmsgerr *error = NLMSG_DATA(reply);

		if (message->nlmsg_len < NLMSG_LENGTH(sizeof(struct tcmsg)) || message->nlmsg_len > sizeof request ||
		    fread(NLMSG_DATA(message), rest, 1, file) != 1)
			return fail(argv[2], "not netlink messages");
		message->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
		((struct tcmsg *)NLMSG_DATA(message))->tcm_ifindex = (int)index;
		if (send(fd, message, message->nlmsg_len, 0) < 0 || recv(fd, reply, sizeof answer, 0) < 0)
			return fail("netlink", strerror(errno));
		if (reply->nlmsg_type != NLMSG_ERROR)
			return fail("netlink", "invalid answer");
		if (error->error != 0) {
			const char *why = explanation(reply);

			return fail(strerror(-error->error), why ? why : "no further explanation");
		}
	}
	return 0;
}
