/* Preloaded into a User Mode Linux kernel: the processor has 8 kB more registers (as with AMX), so the kernel's tasks
 * are larger and lie elsewhere in its memory. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NT_X86_XSTATE 0x202
#define MORE 8192

long ptrace(enum __ptrace_request request, ...)
{
	static size_t real;
	va_list arguments;
	long word, result;

	va_start(arguments, request);
	pid_t pid = va_arg(arguments, pid_t);
	void *address = va_arg(arguments, void *), *data = va_arg(arguments, void *);
	va_end(arguments);

	int gets = request == PTRACE_GETREGSET, sets = request == PTRACE_SETREGSET;
	if ((gets || sets) && (long)address == NT_X86_XSTATE) {
		struct iovec *registers = data;
		size_t given = registers->iov_len;
		if (sets && real && given > real)
			registers->iov_len = real;
		result = syscall(SYS_ptrace, (long)request, pid, address, data);
		if (gets && !result) {
			real = registers->iov_len;
			if (given >= real + MORE) {
				memset((char *)registers->iov_base + real, 0, MORE);
				registers->iov_len = real + MORE;
			}
		} else {
			registers->iov_len = given;
		}
		return result;
	}
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
		result = syscall(SYS_ptrace, (long)request, pid, address, &word);
		return result ? result : word;
	}
	return syscall(SYS_ptrace, (long)request, pid, address, data);
}
