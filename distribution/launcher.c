/* The programs of the tarball: ROOT/rmqstore, and ROOT/bin/python3.11 for processes that it starts.
 *
 * Both are this program; its name tells which. It is linked with the interpreter in ROOT/lib, and finds ROOT through
 * /proc/self/exe: from any directory, and through symbolic links. -I ignores PYTHONPATH and all other variables of
 * Python, and the packages of the user. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int Py_BytesMain(int argc, char **argv);
const char *zlibVersion(void);

int main(int argc, char **argv)
{
    if (!zlibVersion()) /* so that lib/libz.so.1 is loaded: libraries that need one get this one, not the system's */
        return 4;
    char program[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", program, sizeof program - sizeof "/bin/python3.11");
    if (size <= 0) {
        fputs("rmqstore: cannot read /proc/self/exe, which says where its files are\n", stderr);
        return 4;
    }
    program[size] = '\0';
    char *name = strrchr(program, '/');
    if (strncmp(name, "/python", 7) == 0)
        return Py_BytesMain(argc, argv);

    strcpy(name, "/bin/python3.11"); /* becomes sys.executable, and tells the interpreter where its library is */
    char *given[] = {program, "-I", "-B", "-m", "rmqstore"};
    size_t fixed = sizeof given / sizeof *given;
    char **words = calloc(fixed + (size_t)argc, sizeof *words);
    if (!words)
        return 4;
    memcpy(words, given, sizeof given);
    memcpy(words + fixed, argv + 1, (size_t)(argc > 0 ? argc - 1 : 0) * sizeof *words);
    return Py_BytesMain((int)fixed + (argc > 0 ? argc - 1 : 0), words);
}
