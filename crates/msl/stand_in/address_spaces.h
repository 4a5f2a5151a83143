// Metal's address spaces as those of OpenCL, for a pass that only checks that they are right.

#pragma once

#define device __global
#define constant __constant const
#define thread __private
#define threadgroup __local
#define kernel __kernel
#define STAND_IN_KERNEL __kernel
#define STAND_IN_SHARED(number, alignment, name, size) __local char name[size];

// Names to Metal, words of the language to OpenCL.
#define local stand_in_local
#define global stand_in_global
#define private stand_in_private

#pragma OPENCL EXTENSION cl_khr_fp16 : enable

// OpenCL has no such type.
struct bfloat {
    unsigned short bits;
    bfloat() = default;
    bfloat(float);
    operator float() const;
};
