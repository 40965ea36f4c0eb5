// Lets the recorders load where glibc is older than that of the machine that built them: RHEL 8
// has 2.28, and PyTorch's wheels run there.
//
// Since 2.34 the threads and dlopen() are in libc.so.6, under a version of that number, which an
// older glibc lacks. These definitions come before glibc's, for our code and for the C++ library
// that we bring along, and call the same functions under their first version, which every glibc
// has: the older ones in libpthread.so.0 and libdl.so.2, which the libraries are linked with
// (CMakeLists.txt).
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST_VERSION "GLIBC_2.17"
#endif

#ifdef FIRST_VERSION
// first_NAME is NAME under its first version.
#define FIRST(name) __asm__(".symver first_" #name "," #name "@" FIRST_VERSION)
FIRST(dlopen);
FIRST(dlsym);
FIRST(pthread_create);
FIRST(pthread_detach);
FIRST(pthread_once);
FIRST(pthread_rwlock_rdlock);
FIRST(pthread_rwlock_unlock);
FIRST(pthread_rwlock_wrlock);
FIRST(pthread_sigmask);

extern "C" {

decltype(dlopen) first_dlopen;
decltype(dlsym) first_dlsym;
decltype(pthread_create) first_pthread_create;
decltype(pthread_detach) first_pthread_detach;
decltype(pthread_once) first_pthread_once;
decltype(pthread_rwlock_rdlock) first_pthread_rwlock_rdlock;
decltype(pthread_rwlock_unlock) first_pthread_rwlock_unlock;
decltype(pthread_rwlock_wrlock) first_pthread_rwlock_wrlock;
decltype(pthread_sigmask) first_pthread_sigmask;

// RTLD_NEXT means: after the library of the caller, which is this one as well.
void* dlopen(const char* file, int mode) noexcept { return first_dlopen(file, mode); }
void* dlsym(void* library, const char* name) noexcept { return first_dlsym(library, name); }
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  return first_pthread_create(thread, attributes, run, argument);
}
int pthread_detach(pthread_t thread) noexcept { return first_pthread_detach(thread); }
int pthread_once(pthread_once_t* once, void (*run)()) { return first_pthread_once(once, run); }
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  return first_pthread_rwlock_rdlock(lock);
}
int pthread_rwlock_unlock(pthread_rwlock_t* lock) noexcept {
  return first_pthread_rwlock_unlock(lock);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  return first_pthread_rwlock_wrlock(lock);
}
int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return first_pthread_sigmask(how, set, old);
}

// Functions since 2.33; before, they were inline. On these processors glibc's struct is the
// kernel's.
int stat(const char* path, struct stat* out) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, 0));
}
int lstat(const char* path, struct stat* out) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW));
}
int fstat64(int file, struct stat64* out) noexcept {
  return static_cast<int>(syscall(SYS_fstat, file, out));
}

// Since 2.32, for std::shared_ptr: may it count without atomic instructions? Never.
char __libc_single_threaded = 0;

}  // extern "C"
#endif
