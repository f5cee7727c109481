/* A resolver that hangs for names that begin with `slow`, and has for those that begin with `moving` the
   address that stands in the file MOVING_NAMES, if one does; the file MOVING_ASKED grows by a byte with
   each such question. Preloaded by tests. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    lookup *real = (lookup *)dlsym(RTLD_NEXT, "getaddrinfo");
    char address[64] = "";
    if (name && !strncmp(name, "slow", 4)) {
        sleep(60);
        return EAI_AGAIN;
    }
    if (name && !strncmp(name, "moving", 6)) {
        FILE *asked = fopen(getenv("MOVING_ASKED"), "a");
        if (asked) {
            fputc('.', asked);
            fclose(asked);
        }
        FILE *file = fopen(getenv("MOVING_NAMES"), "r");
        if (!file || !fgets(address, sizeof address, file) || !strchr(address, '.')) {
            if (file) {
                fclose(file);
            }
            return EAI_AGAIN;
        }
        fclose(file);
        name = address;
    }
    return real(name, service, hints, found);
}
