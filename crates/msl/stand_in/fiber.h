// Fibers that change places in a few instructions; those of <ucontext.h> ask the system each time.

#pragma once

#include <stddef.h>
#include <stdint.h>

struct Fiber {
    void* stack_pointer;
};

// Saves the registers that a call must keep on the stack of `from` and takes up `to` where it was left.
extern "C" void fiber_switch(Fiber* from, const Fiber* to) __asm__("stand_in_fiber_switch");

#if defined(__x86_64__)

// The registers below, and the return address.
static const size_t FIBER_SAVED = 7;
static const size_t FIBER_RETURN = 6;

__asm__(
    ".text\n"
    ".p2align 4\n"
    ".globl stand_in_fiber_switch\n"
    "stand_in_fiber_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq (%rsi), %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n");

#elif defined(__aarch64__)

static const size_t FIBER_SAVED = 20;
static const size_t FIBER_RETURN = 11;

__asm__(
    ".text\n"
    ".p2align 2\n"
    ".globl stand_in_fiber_switch\n"
    "stand_in_fiber_switch:\n"
    "    sub sp, sp, #160\n"
    "    stp x19, x20, [sp, #0]\n"
    "    stp x21, x22, [sp, #16]\n"
    "    stp x23, x24, [sp, #32]\n"
    "    stp x25, x26, [sp, #48]\n"
    "    stp x27, x28, [sp, #64]\n"
    "    stp x29, x30, [sp, #80]\n"
    "    stp d8, d9, [sp, #96]\n"
    "    stp d10, d11, [sp, #112]\n"
    "    stp d12, d13, [sp, #128]\n"
    "    stp d14, d15, [sp, #144]\n"
    "    mov x9, sp\n"
    "    str x9, [x0]\n"
    "    ldr x9, [x1]\n"
    "    mov sp, x9\n"
    "    ldp x19, x20, [sp, #0]\n"
    "    ldp x21, x22, [sp, #16]\n"
    "    ldp x23, x24, [sp, #32]\n"
    "    ldp x25, x26, [sp, #48]\n"
    "    ldp x27, x28, [sp, #64]\n"
    "    ldp x29, x30, [sp, #80]\n"
    "    ldp d8, d9, [sp, #96]\n"
    "    ldp d10, d11, [sp, #112]\n"
    "    ldp d12, d13, [sp, #128]\n"
    "    ldp d14, d15, [sp, #144]\n"
    "    add sp, sp, #160\n"
    "    ret\n");

#else
#error "the stand-in for Metal has fibers for x86-64 and AArch64 only"
#endif

// Makes `fiber` start with `entry`, which must not return.
inline void fiber_start(Fiber* fiber, char* stack, size_t size, void (*entry)()) {
    uintptr_t* top = (uintptr_t*)(stack + size);
    // Two words more, so that the stack is aligned as at a call.
    uintptr_t* saved = top - 2 - FIBER_SAVED + (FIBER_SAVED % 2);
    for (size_t i = 0; i < FIBER_SAVED; ++i) saved[i] = 0;
    saved[FIBER_RETURN] = (uintptr_t)entry;
    fiber->stack_pointer = saved;
}
