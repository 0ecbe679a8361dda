/* Lets a process have a bad disk for a while: preloaded, it fails what it stands for while a file is there.
 *
 * $FAULTS_AT.fsync: fsync and fdatasync fail with EIO, and sync nothing.
 * $FAULTS_AT.space: writes to regular files and making them longer fail with ENOSPC; every other write is half done first.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int on(const char *what) {
    const char *at = getenv("FAULTS_AT");
    char path[4096];
    int saved = errno;
    int found = at && snprintf(path, sizeof path, "%s.%s", at, what) < (int)sizeof path && access(path, F_OK) == 0;
    errno = saved;
    return found;
}

static int full(int fd) {
    struct stat info;
    return on("space") && fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

static int fail(int error) {
    errno = error;
    return -1;
}

#define REAL(name, type) \
    static type real; \
    if (!real) real = (type)dlsym(RTLD_NEXT, name)

typedef int (*sync_call)(int);
typedef ssize_t (*write_call)(int, const void *, size_t);
typedef ssize_t (*pwrite_call)(int, const void *, size_t, off64_t);
typedef int (*length_call)(int, off64_t);

int fsync(int fd) {
    REAL("fsync", sync_call);
    return on("fsync") ? fail(EIO) : real(fd);
}

int fdatasync(int fd) {
    REAL("fdatasync", sync_call);
    return on("fsync") ? fail(EIO) : real(fd);
}

static unsigned halves;

ssize_t write(int fd, const void *bytes, size_t count) {
    REAL("write", write_call);
    if (!full(fd)) return real(fd, bytes, count);
    return count > 1 && __atomic_add_fetch(&halves, 1, __ATOMIC_RELAXED) % 2 ? real(fd, bytes, count / 2) : fail(ENOSPC);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    REAL("pwrite64", pwrite_call);
    if (!full(fd)) return real(fd, bytes, count, at);
    return count > 1 && __atomic_add_fetch(&halves, 1, __ATOMIC_RELAXED) % 2 ? real(fd, bytes, count / 2, at) : fail(ENOSPC);
}

int ftruncate64(int fd, off64_t length) {
    struct stat info;
    REAL("ftruncate64", length_call);
    if (on("space") && fstat(fd, &info) == 0 && length > info.st_size) return fail(ENOSPC);
    return real(fd, length);
}
