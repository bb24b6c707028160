/* The limit: the least work that any verification of a commitlog has to do, in C.
 *
 * Walks the records of the given files, and checks the magic code, the physical offset, the sum of the lengths and the
 * CRC of every body. Prints records, bytes and seconds as JSON. `limit mmap FILE...` maps the files; `limit read FILE...`
 * reads them in pieces of 4 MiB. CRC-32 comes from ISA-L if compiled with -DUSE_ISAL, otherwise from zlib.
 * baselines.py defines the positions of the fields (AT_..., HEAD_SIZE, ...) as macros, from rmqstore.formats.message.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef USE_ISAL
#include <isa-l/crc.h>
#define CRC(p, n) crc32_gzip_refl(0, (p), (n))
#define CRC_NAME "ISA-L"
#else
#include <zlib.h>
#define CRC(p, n) crc32_z(0, (p), (n))
#define CRC_NAME "zlib"
#endif

#define CHUNK ((size_t)4 << 20)

static uint32_t u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap32(v);
}

static uint64_t u64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap64(v);
}

static uint64_t records, bytes;

/* Walk the records in [p, p+n), and return the number of bytes walked. *end: 1 at BLANK or zeros, 2 at damage, 0 if more
 * bytes are needed. */
static size_t walk(const uint8_t *p, size_t n, uint64_t offset, int *end) {
    size_t at = 0;
    *end = 0;
    while (n - at >= BLANK_SIZE) {
        const uint8_t *r = p + at;
        uint32_t size = u32(r + AT_SIZE), magic = u32(r + AT_MAGIC);
        if (magic == BLANK_MAGIC || size == 0) { *end = 1; return at; }
        uint32_t wide = magic == MAGIC_V1 ? 1 : 2;
        if ((magic != MAGIC_V1 && magic != MAGIC_V2) || size < MIN_SIZE) { *end = 2; return at; }
        if (size > n - at) return at;
        if (u64(r + AT_PHYSICAL_OFFSET) != offset + at) { *end = 2; return at; }
        uint32_t flags = u32(r + AT_SYS_FLAG);
        size_t more = (flags & BORN_V6 ? HOST_MORE : 0) + (flags & STORE_V6 ? HOST_MORE : 0), head = HEAD_SIZE + more;
        if (head + wide + 2 > size) { *end = 2; return at; }
        uint32_t body = u32(r + AT_BODY_LENGTH + more);
        if ((size_t)body + head + wide + 2 > size) { *end = 2; return at; }
        const uint8_t *t = r + head + body;
        uint32_t topic = wide == 1 ? t[0] : (uint32_t)t[0] << 8 | t[1];
        if ((size_t)body + head + wide + topic + 2 > size) { *end = 2; return at; }
        t += wide + topic;
        uint32_t properties = (uint32_t)t[0] << 8 | t[1];
        if (head + body + wide + topic + 2 + properties != size) { *end = 2; return at; }
        if (body && (CRC(r + head, body) & 0x7fffffff) != u32(r + AT_BODY_CRC)) { *end = 2; return at; }
        records++;
        at += size;
    }
    return at;
}

int main(int argc, char **argv) {
    int mapped = argc > 2 && !strcmp(argv[1], "mmap"), damaged = 0;
    if (argc < 3) { fprintf(stderr, "limit mmap|read FILE...\n"); return 2; }
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    size_t room = CHUNK * 2;
    uint8_t *buffer = mapped ? NULL : malloc(room);
    for (int i = 2; i < argc; i++) {
        int fd = open(argv[i], O_RDONLY), end = 0;
        struct stat st;
        if (fd < 0 || fstat(fd, &st)) { perror(argv[i]); return 3; }
        const char *name = strrchr(argv[i], '/');
        uint64_t base = strtoull(name ? name + 1 : argv[i], NULL, 10);
        if (mapped) {
            void *m = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
            if (m == MAP_FAILED) { perror("mmap"); return 3; }
            bytes += walk(m, st.st_size, base, &end);
            munmap(m, st.st_size);
        } else {
            size_t have = 0;
            uint64_t done = 0;
            for (;;) {
                ssize_t got = read(fd, buffer + have, room - have < CHUNK ? room - have : CHUNK);
                if (got < 0) { perror("read"); return 3; }
                have += got;
                size_t used = walk(buffer, have, base + done, &end);
                bytes += used, done += used, have -= used;
                memmove(buffer, buffer + used, have);
                if (end || got == 0) break;
            }
        }
        damaged |= end == 2;
        close(fd);
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("{\"records\": %llu, \"bytes\": %llu, \"seconds\": %.6f, \"crc\": \"%s\", \"damaged\": %s}\n",
           (unsigned long long)records, (unsigned long long)bytes,
           (b.tv_sec - a.tv_sec) + (b.tv_nsec - a.tv_nsec) / 1e9, CRC_NAME, damaged ? "true" : "false");
    return damaged;
}
