/* A resolver that hangs for names that begin with `slow`; preloaded by tests. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    lookup *real = (lookup *)dlsym(RTLD_NEXT, "getaddrinfo");
    if (name && !strncmp(name, "slow", 4)) {
        sleep(60);
        return EAI_AGAIN;
    }
    return real(name, service, hints, found);
}
