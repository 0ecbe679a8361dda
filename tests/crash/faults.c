/* Lets a process have a bad disk for a while, and notes what a power cut would take away. To be preloaded.
 *
 * While $FAULTS_AT.fsync is there fsync and fdatasync fail with EIO, and sync nothing. While $FAULTS_AT.space is there writes to
 * regular files and making them longer fail with ENOSPC; every other write is half done first.
 *
 * Into $FAULTS_AT.log goes a line for what happens to files that are no databases (redb is tested by itself), before it happens, or
 * after it for what makes things durable:
 *
 *   C path          a file is made          M path      a directory is made
 *   W length path   a file is written       U path      a file is removed
 *   S length path   a file is synced        D path      a directory is synced
 *   L path          a file gets a name      R from TAB to, or O from TAB to where that was there
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
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
typedef ssize_t (*writev_call)(int, const struct iovec *, int);
typedef ssize_t (*pwrite_call)(int, const void *, size_t, off64_t);
typedef int (*length_call)(int, off64_t);
typedef int (*open_call)(const char *, int, ...);
typedef int (*pair_call)(const char *, const char *);
typedef int (*linkat_call)(int, const char *, int, const char *, int);
typedef int (*path_call)(const char *);
typedef int (*mode_call)(const char *, mode_t);

static void note(const char *format, ...) {
    static int log = -1;
    const char *at = getenv("FAULTS_AT");
    char line[9000];
    if (!at) return;
    int saved = errno;
    if (log < 0) {
        REAL("open", open_call);
        if (snprintf(line, sizeof line, "%s.log", at) < (int)sizeof line) log = real(line, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    }
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    REAL("write", write_call);
    if (log >= 0 && length > 0 && length < (int)sizeof line && real(log, line, length) != length) abort();
    errno = saved;
}

static int is_database(const char *path) {
    size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".redb") == 0;
}

/* The path behind a descriptor of a regular file or directory that is noted. */
static int path_of(int fd, char *path, size_t size, struct stat *info) {
    char link[64];
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = fstat(fd, info) == 0 && (S_ISREG(info->st_mode) || S_ISDIR(info->st_mode)) ? readlink(link, path, size - 1) : -1;
    errno = saved;
    if (length <= 0) return 0;
    path[length] = 0;
    return !is_database(path);
}

static void written(int fd) {
    char path[4096];
    struct stat info;
    if (path_of(fd, path, sizeof path, &info)) note("W %lld %s\n", (long long)info.st_size, path);
}

static int synced(int fd, int result) {
    char path[4096];
    struct stat info;
    if (result == 0 && path_of(fd, path, sizeof path, &info)) {
        if (S_ISDIR(info.st_mode)) note("D %s\n", path);
        else note("S %lld %s\n", (long long)info.st_size, path);
    }
    return result;
}

static void opened(const char *path, int flags) {
    if (is_database(path) || !(flags & (O_CREAT | O_TRUNC))) return;
    int saved = errno;
    if (access(path, F_OK) != 0) note("C %s\n", path);
    else if (flags & O_TRUNC) note("W 0 %s\n", path);
    errno = saved;
}

int fsync(int fd) {
    REAL("fsync", sync_call);
    return on("fsync") ? fail(EIO) : synced(fd, real(fd));
}

int fdatasync(int fd) {
    REAL("fdatasync", sync_call);
    return on("fsync") ? fail(EIO) : synced(fd, real(fd));
}

static unsigned halves;

static int half(size_t count) {
    return count > 1 && __atomic_add_fetch(&halves, 1, __ATOMIC_RELAXED) % 2;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    REAL("write", write_call);
    written(fd);
    if (!full(fd)) return real(fd, bytes, count);
    return half(count) ? real(fd, bytes, count / 2) : fail(ENOSPC);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL("writev", writev_call);
    written(fd);
    return full(fd) ? fail(ENOSPC) : real(fd, parts, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    REAL("pwrite64", pwrite_call);
    written(fd);
    if (!full(fd)) return real(fd, bytes, count, at);
    return half(count) ? real(fd, bytes, count / 2, at) : fail(ENOSPC);
}

int ftruncate64(int fd, off64_t length) {
    struct stat info;
    REAL("ftruncate64", length_call);
    if (on("space") && fstat(fd, &info) == 0 && length > info.st_size) return fail(ENOSPC);
    return real(fd, length);
}

int open(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    REAL("open", open_call);
    opened(path, flags);
    return real(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    REAL("open64", open_call);
    opened(path, flags);
    return real(path, flags, mode);
}

int rename(const char *from, const char *to) {
    REAL("rename", pair_call);
    int saved = errno;
    int over = access(to, F_OK) == 0;
    errno = saved;
    note("%c %s\t%s\n", over ? 'O' : 'R', from, to);
    return real(from, to);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    REAL("linkat", linkat_call);
    int saved = errno;
    int there = access(to, F_OK) == 0;
    errno = saved;
    if (to_dir == AT_FDCWD && !there) note("L %s\n", to);
    return real(from_dir, from, to_dir, to, flags);
}

int unlink(const char *path) {
    REAL("unlink", path_call);
    note("U %s\n", path);
    return real(path);
}

int mkdir(const char *path, mode_t mode) {
    REAL("mkdir", mode_call);
    int saved = errno;
    if (access(path, F_OK) != 0) note("M %s\n", path);
    errno = saved;
    return real(path, mode);
}
