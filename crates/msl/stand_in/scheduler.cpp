// Runs a kernel's threadgroups one after the other, each thread of a group as a fiber.
//
// A SIMD group runs as far ahead as it can, up to a barrier, before the next one gets its turn. Each launch runs
// twice, on the same buffers, the second time with groups, SIMD groups and lanes the other way round: what a missing
// barrier leaves unordered then happens in an order that is wrong in at least one of the two. As a threadgroup runs to
// its end before the next one starts, one that waits for another does not end, or ends with other results.
//
// Launches come through standard input and their buffers go back through standard output, until the input ends. What
// a kernel must not do ends the process with 3 and a line on standard error that says what it was. Buffers and
// threadgroup memory end where a page without access begins, so that the first byte past them is noticed.

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "fiber.h"
#include "kernel.h"

static const unsigned LANES = 32;
static const size_t STACK = 1 << 18;
// Without access, around everything that a kernel may access.
static const size_t GUARD = 1 << 20;
// Seconds of the processor's time; a launch that runs longer waits for something that does not come.
static const unsigned PATIENCE = 5;

static unsigned group[3];

[[noreturn]] static void fail(const char* what, unsigned number = 0) {
    fprintf(stderr, what, number);
    fprintf(stderr, ", in threadgroup %u,%u,%u\n", group[0], group[1], group[2]);
    fflush(stderr);
    _exit(3);
}

// Memory that ends where access ends.
struct Area {
    char* map;
    size_t map_size;
    char* memory;
    size_t size;

    void make(size_t wanted, size_t alignment) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        size_t pages = (wanted + page - 1) / page * page;
        map_size = GUARD + pages + GUARD;
        map = (char*)mmap(nullptr, map_size, PROT_NONE, MAP_PRIVATE | MAP_ANON, -1, 0);
        if (map == MAP_FAILED || mprotect(map + GUARD, pages, PROT_READ | PROT_WRITE) != 0) {
            fail("there is not enough memory");
        }
        memory = map + GUARD + pages - (wanted + alignment - 1) / alignment * alignment;
        size = wanted;
    }

    void drop() { munmap(map, map_size); }

    bool surrounds(const void* address) const { return address >= map && address < map + map_size; }
};

enum State { READY, AT_BARRIER, AT_SIMD, DONE };

struct Thread {
    Fiber fiber;
    Area stack;
    State state;
    // Where in the kernel it waits.
    void* place;
    StandInThread self;
    // What it gives to the other lanes.
    unsigned char given[16];
};

static Thread* threads;
static Thread* current;
static unsigned thread_count;
static Fiber scheduler;

static void** buffers;
static Area* buffer_areas;
static unsigned buffer_count;

// Threadgroup memory, by the number that the kernel gives it.
static struct {
    Area area;
    unsigned long group;
} shared[16];
static unsigned long group_number;

static void leave(State state, void* place) {
    current->state = state;
    current->place = place;
    fiber_switch(&current->fiber, &scheduler);
}

static void run_thread() {
    stand_in_kernel(&current->self, buffers);
    leave(DONE, nullptr);
    abort();
}

extern "C" void stand_in_threadgroup_barrier() { leave(AT_BARRIER, __builtin_return_address(0)); }

extern "C" void stand_in_simdgroup_barrier() { leave(AT_SIMD, __builtin_return_address(0)); }

extern "C" unsigned stand_in_lane() { return current->self.index % LANES; }

extern "C" void stand_in_from_lane(const void* mine, void* theirs, unsigned size, unsigned lane) {
    if (size > sizeof(current->given)) fail("a lane gives more than 16 bytes");
    memcpy(current->given, mine, size);
    void* place = __builtin_return_address(0);
    leave(AT_SIMD, place);
    unsigned index = current->self.index / LANES * LANES + lane;
    if (lane < LANES && index < thread_count) memcpy(theirs, threads[index].given, size);
    // All have taken before one gives again.
    leave(AT_SIMD, place);
}

extern "C" void* stand_in_shared(unsigned number, unsigned long size, unsigned long alignment) {
    if (number >= sizeof(shared) / sizeof(shared[0])) fail("there are too many objects in threadgroup memory");
    auto& object = shared[number];
    if (!object.area.map) object.area.make(size, alignment);
    if (object.group != group_number) {
        // Not a number in every type, once for each group.
        memset(object.area.memory, 0xff, size);
        object.group = group_number;
    }
    return object.area.memory;
}

// Runs the lanes of a SIMD group until each has come to a barrier of the threadgroup or to its end.
static void run_simd_group(unsigned first, bool ascending) {
    unsigned end = first + LANES < thread_count ? first + LANES : thread_count;
    for (;;) {
        for (unsigned i = first; i < end; ++i) {
            Thread* thread = &threads[ascending ? i : end - 1 - (i - first)];
            if (thread->state != READY) continue;
            current = thread;
            fiber_switch(&scheduler, &thread->fiber);
        }
        unsigned waiting = 0, at_barrier = 0;
        void* place = nullptr;
        for (unsigned i = first; i < end; ++i) {
            waiting += threads[i].state == AT_SIMD;
            at_barrier += threads[i].state == AT_BARRIER;
            if (threads[i].state != AT_SIMD) continue;
            if (place && place != threads[i].place) fail("lanes of a SIMD group are at different SIMD functions");
            place = threads[i].place;
        }
        if (waiting == 0) return;
        if (at_barrier > 0) fail("a lane waits for a lane that waits at a barrier");
        for (unsigned i = first; i < end; ++i) {
            if (threads[i].state == AT_SIMD) threads[i].state = READY;
        }
    }
}

static void run_group(const unsigned* groups, bool ascending) {
    ++group_number;
    for (unsigned i = 0; i < thread_count; ++i) {
        Thread* thread = &threads[i];
        const unsigned* size = stand_in_threads;
        thread->self.index = i;
        thread->self.position[0] = i % size[0];
        thread->self.position[1] = i / size[0] % size[1];
        thread->self.position[2] = i / size[0] / size[1];
        for (int axis = 0; axis < 3; ++axis) {
            thread->self.group[axis] = group[axis];
            thread->self.groups[axis] = groups[axis];
        }
        thread->state = READY;
        fiber_start(&thread->fiber, thread->stack.memory, STACK, run_thread);
    }
    unsigned simd_groups = (thread_count + LANES - 1) / LANES;
    for (;;) {
        for (unsigned i = 0; i < simd_groups; ++i) {
            run_simd_group((ascending ? i : simd_groups - 1 - i) * LANES, ascending);
        }
        unsigned done = 0;
        for (unsigned i = 0; i < thread_count; ++i) {
            done += threads[i].state == DONE;
            if (threads[i].place != threads[0].place) fail("threads are at different barriers, or past the last");
        }
        if (done == thread_count) return;
        for (unsigned i = 0; i < thread_count; ++i) threads[i].state = READY;
    }
}

static void run_launch(const unsigned* groups, bool ascending) {
    unsigned long total = (unsigned long)groups[0] * groups[1] * groups[2];
    for (unsigned long i = 0; i < total; ++i) {
        unsigned long index = ascending ? i : total - 1 - i;
        group[0] = (unsigned)(index % groups[0]);
        group[1] = (unsigned)(index / groups[0] % groups[1]);
        group[2] = (unsigned)(index / groups[0] / groups[1]);
        run_group(groups, ascending);
    }
}

static void on_signal(int signal, siginfo_t* info, void*) {
    if (signal == SIGVTALRM) fail("it does not end: a threadgroup waits for another, or a loop has no bound");
    if (signal != SIGSEGV && signal != SIGBUS) {
        fail("behaviour is undefined: an index outside an array, a shift, a division or an overflow");
    }
    for (unsigned i = 0; i < buffer_count; ++i) {
        if (buffer_areas[i].surrounds(info->si_addr)) fail("a thread leaves buffer %u", i);
    }
    for (auto& object : shared) {
        if (object.area.map && object.area.surrounds(info->si_addr)) fail("a thread leaves its threadgroup memory");
    }
    if (current && current->stack.surrounds(info->si_addr)) fail("a thread needs too large a stack");
    fail("a thread accesses what is no memory of its own");
}

static void catch_signals() {
    static char stack[1 << 16];
    stack_t alternate = {};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof(stack);
    sigaltstack(&alternate, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGVTALRM};
    for (int signal : signals) sigaction(signal, &action, nullptr);
}

// Ends the process after so many seconds, or no more if that is none.
static void set_timer(unsigned seconds) {
    struct itimerval timer = {};
    timer.it_value.tv_sec = seconds;
    setitimer(ITIMER_VIRTUAL, &timer, nullptr);
}

// False where the input ends.
static bool read_all(void* memory, size_t size) { return size == 0 || fread(memory, 1, size, stdin) == size; }

int main() {
    catch_signals();
    thread_count = stand_in_threads[0] * stand_in_threads[1] * stand_in_threads[2];
    threads = (Thread*)calloc(thread_count, sizeof(Thread));
    for (unsigned i = 0; i < thread_count; ++i) threads[i].stack.make(STACK, 16);

    // Threadgroups, and the number of buffers.
    uint32_t header[4];
    while (read_all(header, sizeof(header))) {
        buffer_count = header[3];
        buffers = (void**)malloc(buffer_count * sizeof(void*));
        buffer_areas = (Area*)malloc(buffer_count * sizeof(Area));
        char** copies = (char**)malloc(buffer_count * sizeof(char*));
        for (unsigned i = 0; i < buffer_count; ++i) {
            uint64_t size;
            if (!read_all(&size, sizeof(size))) return 4;
            // Vectors are in threadgroup memory only, so that a buffer needs no alignment but that of its numbers.
            buffer_areas[i].make(size, 1);
            buffers[i] = buffer_areas[i].memory;
            if (!read_all(buffers[i], size)) return 4;
            copies[i] = (char*)malloc(size);
            memcpy(copies[i], buffers[i], size);
        }
        set_timer(PATIENCE);
        run_launch(header, true);
        for (unsigned i = 0; i < buffer_count; ++i) {
            char* result = (char*)malloc(buffer_areas[i].size);
            memcpy(result, buffers[i], buffer_areas[i].size);
            memcpy(buffers[i], copies[i], buffer_areas[i].size);
            free(copies[i]);
            copies[i] = result;
        }
        run_launch(header, false);
        set_timer(0);
        memset(group, 0, sizeof(group));
        for (unsigned i = 0; i < buffer_count; ++i) {
            if (memcmp(copies[i], buffers[i], buffer_areas[i].size) != 0) {
                fail("buffer %u depends on the order of threads: a barrier is missing", i);
            }
        }
        const uint32_t done = 1;
        fwrite(&done, sizeof(done), 1, stdout);
        for (unsigned i = 0; i < buffer_count; ++i) {
            if (fwrite(copies[i], 1, buffer_areas[i].size, stdout) != buffer_areas[i].size) return 4;
            buffer_areas[i].drop();
            free(copies[i]);
        }
        if (fflush(stdout) != 0) return 4;
        free(buffers);
        free(buffer_areas);
        free(copies);
    }
    return 0;
}
