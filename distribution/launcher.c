/* The programs of the tarball: ROOT/rmqstore, and ROOT/bin/python3.11 for processes that it starts.
 *
 * Both are this program; its name tells which. It finds ROOT through /proc/self/exe, or without /proc, as in a rescue
 * shell, through the path by which it was started: from any directory, and through symbolic links. It loads the
 * interpreter from ROOT/lib by its path, because the loader finds $ORIGIN of a program only through /proc. -I ignores
 * PYTHONPATH and all other variables of Python, and the packages of the user. */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define LONGEST "/lib/libpython3.11.so.1.0"

typedef int main_function(int argc, char **argv);

/* Before glibc 2.34, libpthread has to be there from the start, not only when the interpreter is loaded. */
int (*const rmqstore_needs_threads)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = pthread_create;

/* Write the path of this program, without symbolic links. */
static int find_program(char *program)
{
    ssize_t size = readlink("/proc/self/exe", program, PATH_MAX - 1);
    if (size > 0) {
        program[size] = '\0';
        return program[0] == '/';
    }
    const char *given = (const char *)getauxval(AT_EXECFN);
    return given && realpath(given, program) != NULL;
}

/* Load ROOT/lib/NAME for all libraries that need it by its name. */
static void *load(const char *root, const char *name)
{
    char path[PATH_MAX + sizeof LONGEST];
    snprintf(path, sizeof path, "%s/lib/%s", root, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        fprintf(stderr, "rmqstore: %s\n", dlerror());
    return library;
}

int main(int argc, char **argv)
{
    char program[PATH_MAX + sizeof LONGEST], root[PATH_MAX];
    if (!find_program(program)) {
        fputs("rmqstore: cannot find its own files: start it by its absolute path\n", stderr);
        return 4;
    }
    char *name = strrchr(program, '/');
    int python = strncmp(name, "/python", 7) == 0;
    size_t length = (size_t)(name - program);
    memcpy(root, program, length);
    root[length] = '\0';
    if (python && length >= 4 && strcmp(root + length - 4, "/bin") == 0)
        root[length - 4] = '\0';

    /* first libz.so.1: libraries that need one get this one, not the system's */
    void *interpreter = load(root, "libz.so.1") ? load(root, "libpython3.11.so.1.0") : NULL;
    if (!interpreter)
        return 4;
    main_function *run;
    *(void **)&run = dlsym(interpreter, "Py_BytesMain");
    if (!run)
        return 4;
    if (python)
        return run(argc, argv);

    strcpy(name, "/bin/python3.11"); /* becomes sys.executable, and tells the interpreter where its library is */
    char *given[] = {program, "-I", "-B", "-m", "rmqstore"};
    size_t fixed = sizeof given / sizeof *given;
    char **words = calloc(fixed + (size_t)argc, sizeof *words);
    if (!words)
        return 4;
    memcpy(words, given, sizeof given);
    memcpy(words + fixed, argv + 1, (size_t)(argc > 0 ? argc - 1 : 0) * sizeof *words);
    return run((int)fixed + (argc > 0 ? argc - 1 : 0), words);
}
