// naga includes Apple's <simd/simd.h>; the stand-in for <metal_stdlib> has what a kernel uses of it.

#pragma once
