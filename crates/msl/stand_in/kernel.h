// Between the scheduler and a kernel.

#pragma once

// What a thread knows of itself.
struct StandInThread {
    unsigned index;
    unsigned position[3];
    unsigned group[3];
    unsigned groups[3];
};

extern "C" {
// Threads of a threadgroup.
extern const unsigned stand_in_threads[3];
// Runs one thread of the kernel.
void stand_in_kernel(const StandInThread* thread, void** buffers);
}
