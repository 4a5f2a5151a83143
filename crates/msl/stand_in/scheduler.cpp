// Runs a kernel's threadgroups one after the other, each thread of a group as a fiber.
//
// A SIMD group runs as far ahead as it can, up to a barrier, before the next one gets its turn, and in the second
// order the other way round: what a missing barrier leaves unordered then happens in an order that is wrong in at
// least one of the two.
//
// Reads the launch from the file that the first argument names, writes the buffers to the second's; the third is
// `ascending` or `descending`. Exits with 3 and a line that says so if the threads of a group don't all come to the same
// barrier. Built with the address sanitizer, which ends the process where a buffer is left.

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "kernel.h"

// The scheduler ends with its memory still in use, and the kernels' stacks are its own.
extern "C" const char* __asan_default_options() {
    return "detect_leaks=0:detect_stack_use_after_return=0:symbolize=0";
}

static const unsigned LANES = 32;
static const size_t STACK = 1 << 20;

enum State { READY, AT_BARRIER, AT_SIMD, DONE };

struct Fiber {
    ucontext_t context;
    char* stack;
    void* asan_stack;
    State state;
    // Where in the kernel it waits.
    void* place;
    StandInThread thread;
    // What it gives to the other lanes.
    unsigned char given[16];
};

static Fiber* fibers;
static Fiber* current;
static unsigned fiber_count;
static ucontext_t scheduler;
static void* scheduler_asan_stack;
static const void* scheduler_stack;
static size_t scheduler_stack_size;
static void** buffers;
static unsigned long group_number;

[[noreturn]] static void fail(const char* what) {
    fprintf(stderr, "%s, in threadgroup %u,%u,%u\n", what, fibers[0].thread.group[0], fibers[0].thread.group[1],
            fibers[0].thread.group[2]);
    exit(3);
}

static void leave(State state, void* place) {
    Fiber* fiber = current;
    fiber->state = state;
    fiber->place = place;
    void** keep = state == DONE ? nullptr : &fiber->asan_stack;
    __sanitizer_start_switch_fiber(keep, scheduler_stack, scheduler_stack_size);
    swapcontext(&fiber->context, &scheduler);
    __sanitizer_finish_switch_fiber(fiber->asan_stack, &scheduler_stack, &scheduler_stack_size);
}

static void run_fiber() {
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_size);
    stand_in_kernel(&current->thread, buffers);
    leave(DONE, nullptr);
}

static void resume(Fiber* fiber) {
    current = fiber;
    __sanitizer_start_switch_fiber(&scheduler_asan_stack, fiber->stack, STACK);
    swapcontext(&scheduler, &fiber->context);
    __sanitizer_finish_switch_fiber(scheduler_asan_stack, nullptr, nullptr);
}

extern "C" void stand_in_threadgroup_barrier() { leave(AT_BARRIER, __builtin_return_address(0)); }

extern "C" void stand_in_simdgroup_barrier() { leave(AT_SIMD, __builtin_return_address(0)); }

extern "C" unsigned stand_in_lane() { return current->thread.index % LANES; }

extern "C" void stand_in_from_lane(const void* mine, void* theirs, unsigned size, unsigned lane) {
    if (size > sizeof(current->given)) fail("a lane gives more than 16 bytes");
    memcpy(current->given, mine, size);
    void* place = __builtin_return_address(0);
    leave(AT_SIMD, place);
    unsigned index = current->thread.index / LANES * LANES + lane;
    if (lane < LANES && index < fiber_count) memcpy(theirs, fibers[index].given, size);
    // All have taken before one gives again.
    leave(AT_SIMD, place);
}

extern "C" void stand_in_shared(void* memory, unsigned long size) {
    // Not a number in every type, once for each group.
    static struct { void* memory; unsigned long group; } seen[64];
    for (auto& entry : seen) {
        if (entry.memory == memory && entry.group == group_number) return;
        if (entry.memory == memory || entry.memory == nullptr) {
            entry = {memory, group_number};
            memset(memory, 0xff, size);
            return;
        }
    }
    fail("more than 64 objects in threadgroup memory");
}

// Runs the lanes of a SIMD group until each has come to a barrier of the threadgroup or to its end.
static void run_simd_group(unsigned first, bool ascending) {
    unsigned end = first + LANES < fiber_count ? first + LANES : fiber_count;
    for (;;) {
        for (unsigned i = first; i < end; ++i) {
            Fiber* fiber = &fibers[ascending ? i : end - 1 - (i - first)];
            if (fiber->state == READY) resume(fiber);
        }
        unsigned waiting = 0, at_barrier = 0;
        void* place = nullptr;
        for (unsigned i = first; i < end; ++i) {
            waiting += fibers[i].state == AT_SIMD;
            at_barrier += fibers[i].state == AT_BARRIER;
            if (fibers[i].state != AT_SIMD) continue;
            if (place && place != fibers[i].place) fail("lanes of a SIMD group are at different SIMD functions");
            place = fibers[i].place;
        }
        if (waiting == 0) return;
        if (at_barrier > 0) fail("a lane waits for a lane that waits at a barrier");
        for (unsigned i = first; i < end; ++i) {
            if (fibers[i].state == AT_SIMD) fibers[i].state = READY;
        }
    }
}

static void run_group(const unsigned* group, const unsigned* groups, bool ascending) {
    ++group_number;
    for (unsigned i = 0; i < fiber_count; ++i) {
        Fiber* fiber = &fibers[i];
        const unsigned* threads = stand_in_threads;
        fiber->thread.index = i;
        fiber->thread.position[0] = i % threads[0];
        fiber->thread.position[1] = i / threads[0] % threads[1];
        fiber->thread.position[2] = i / threads[0] / threads[1];
        for (int axis = 0; axis < 3; ++axis) {
            fiber->thread.group[axis] = group[axis];
            fiber->thread.groups[axis] = groups[axis];
        }
        fiber->state = READY;
        __asan_unpoison_memory_region(fiber->stack, STACK);
        getcontext(&fiber->context);
        fiber->context.uc_stack.ss_sp = fiber->stack;
        fiber->context.uc_stack.ss_size = STACK;
        fiber->context.uc_link = nullptr;
        makecontext(&fiber->context, run_fiber, 0);
    }
    unsigned simd_groups = (fiber_count + LANES - 1) / LANES;
    for (;;) {
        for (unsigned i = 0; i < simd_groups; ++i) {
            run_simd_group((ascending ? i : simd_groups - 1 - i) * LANES, ascending);
        }
        unsigned done = 0;
        for (unsigned i = 0; i < fiber_count; ++i) {
            done += fibers[i].state == DONE;
            if (fibers[i].place != fibers[0].place) fail("threads are at different barriers, or past the last");
        }
        if (done == fiber_count) return;
        for (unsigned i = 0; i < fiber_count; ++i) fibers[i].state = READY;
    }
}

static void transfer(size_t (*how)(void*, size_t, size_t, FILE*), void* memory, size_t size, FILE* file) {
    if (size > 0 && how(memory, 1, size, file) != size) {
        fprintf(stderr, "a launch's file is too short\n");
        exit(4);
    }
}

static size_t write_to(void* memory, size_t size, size_t count, FILE* file) {
    return fwrite(memory, size, count, file);
}

int main(int argc, char** argv) {
    if (argc != 4) return 4;
    FILE* in = fopen(argv[1], "rb");
    if (!in) return 4;
    bool ascending = strcmp(argv[3], "ascending") == 0;

    uint32_t header[4];
    transfer(fread, header, sizeof(header), in);
    unsigned buffer_count = header[3];
    uint64_t* sizes = (uint64_t*)malloc(buffer_count * sizeof(uint64_t));
    buffers = (void**)malloc(buffer_count * sizeof(void*));
    for (unsigned i = 0; i < buffer_count; ++i) {
        transfer(fread, &sizes[i], sizeof(uint64_t), in);
        buffers[i] = malloc(sizes[i]);
        transfer(fread, buffers[i], sizes[i], in);
    }
    fclose(in);

    fiber_count = stand_in_threads[0] * stand_in_threads[1] * stand_in_threads[2];
    fibers = (Fiber*)calloc(fiber_count, sizeof(Fiber));
    for (unsigned i = 0; i < fiber_count; ++i) fibers[i].stack = (char*)malloc(STACK);
    unsigned long total = (unsigned long)header[0] * header[1] * header[2];
    for (unsigned long i = 0; i < total; ++i) {
        unsigned long index = ascending ? i : total - 1 - i;
        unsigned group[3] = {
            (unsigned)(index % header[0]),
            (unsigned)(index / header[0] % header[1]),
            (unsigned)(index / header[0] / header[1]),
        };
        run_group(group, header, ascending);
    }

    FILE* out = fopen(argv[2], "wb");
    if (!out) return 4;
    for (unsigned i = 0; i < buffer_count; ++i) transfer(write_to, buffers[i], sizes[i], out);
    return fclose(out) == 0 ? 0 : 4;
}
