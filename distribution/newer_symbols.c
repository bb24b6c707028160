/* Functions that the interpreter for aarch64 takes from a glibc newer than 2.17, as that glibc defines them. They are
 * system calls that the interpreter also works without: if the kernel lacks one, it gets ENOSYS. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned flags)
{
    return syscall(SYS_copy_file_range, from, from_at, to, to_at, size, flags);
}

int memfd_create(const char *name, unsigned flags)
{
    return (int)syscall(SYS_memfd_create, name, flags);
}

ssize_t getrandom(void *buffer, size_t size, unsigned flags)
{
    return syscall(SYS_getrandom, buffer, size, flags);
}

/* Without flags, these are preadv and pwritev, which older kernels have too. */
ssize_t preadv64v2(int file, const struct iovec *parts, int count, off64_t at, int flags)
{
    if (flags == 0 && at >= 0)
        return preadv64(file, parts, count, at);
    return syscall(SYS_preadv2, file, parts, (unsigned long)count, at, 0L, flags);
}

ssize_t pwritev64v2(int file, const struct iovec *parts, int count, off64_t at, int flags)
{
    if (flags == 0 && at >= 0)
        return pwritev64(file, parts, count, at);
    return syscall(SYS_pwritev2, file, parts, (unsigned long)count, at, 0L, flags);
}

void __explicit_bzero_chk(void *begin, size_t size, size_t room)
{
    (void)room;
    memset(begin, 0, size);
    __asm__ volatile("" : : "r"(begin) : "memory");
}
