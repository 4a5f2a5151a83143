//! A kernel's MSL as C++ that the stand-in's scheduler can call.

use crate::signature::{Argument, Bound, Signature};

/// The text with what the scheduler calls. The kernel has `buffers` before its info, and these `threads` in a group.
pub fn cpp(text: &str, buffers: usize, threads: [u32; 3]) -> Result<String, String> {
    let signature = Signature::read(text, buffers)?;
    let (text, declared) = share_declared_memory(text)?;
    let mut text = text.replace("[[kernel]] void", "STAND_IN_KERNEL void");
    // naga's constructors of vectors.
    for scalar in ["float", "half", "int", "uint"] {
        for size in 2..=4 {
            text = text.replace(&format!("metal::{scalar}{size}("), &format!("stand_in_{scalar}{size}("));
        }
    }
    let mut statements = String::new();
    let mut arguments = Vec::new();
    for (position, argument) in signature.arguments.iter().enumerate() {
        arguments.push(match &argument.bound {
            Bound::Buffer(number) => bind(argument, &format!("buffers[{number}]")),
            Bound::BuiltIn(name) => built_in(name)?.to_string(),
            Bound::Threadgroup => {
                let kind = argument.kind.trim_start_matches("threadgroup ").trim_end_matches('&');
                let name = format!("shared_{position}");
                statements += &format!(
                    "    {kind}& {name} = *({kind}*)stand_in_shared({}, sizeof({kind}), alignof({kind}));\n",
                    declared + position
                );
                name
            }
        });
    }
    let [x, y, z] = threads;
    Ok(format!(
        "{text}\n#ifndef STAND_IN_ADDRESS_SPACES\n#include \"kernel.h\"\n\
         extern \"C\" {{\nextern const unsigned stand_in_threads[3] = {{{x}, {y}, {z}}};\n\
         void stand_in_kernel(const StandInThread* self, void** buffers) {{\n{statements}    {}(\n        {});\n}}\n}}\n\
         #endif\n",
        signature.name,
        arguments.join(",\n        "),
    ))
}

/// A buffer as the argument's type, a pointer or a reference.
fn bind(argument: &Argument, buffer: &str) -> String {
    match argument.kind.strip_suffix('&') {
        Some(kind) => format!("*({kind}*){buffer}"),
        None => format!("({}){buffer}", argument.kind),
    }
}

/// What a thread knows of itself.
fn built_in(name: &str) -> Result<&'static str, String> {
    Ok(match name {
        "thread_index_in_threadgroup" => "self->index",
        "thread_position_in_threadgroup" => "uint3{self->position[0], self->position[1], self->position[2]}",
        "threadgroup_position_in_grid" => "uint3{self->group[0], self->group[1], self->group[2]}",
        "threadgroups_per_grid" => "uint3{self->groups[0], self->groups[1], self->groups[2]}",
        "threads_per_simdgroup" => "32u",
        "simdgroup_index_in_threadgroup" => "self->index / 32",
        "thread_index_in_simdgroup" => "self->index % 32",
        _ => return Err(format!("the stand-in does not know [[{name}]]")),
    })
}

/// Threadgroup memory that a kernel declares, `alignas(16) threadgroup char name[size];`, made one for all threads. Also
/// says how often there is some.
fn share_declared_memory(text: &str) -> Result<(String, usize), String> {
    let mut shared = String::with_capacity(text.len());
    let mut count = 0;
    for line in text.lines() {
        let declared = line.trim_start().strip_prefix("alignas(");
        match declared.and_then(|declared| declared.split_once(") threadgroup char ")) {
            Some((alignment, declaration)) => {
                let array = declaration.trim_end().strip_suffix(';').and_then(|array| array.split_once('['));
                let (name, size) = array
                    .and_then(|(name, size)| Some((name, size.strip_suffix(']')?)))
                    .ok_or_else(|| format!("threadgroup memory is declared in an unknown way: {line}"))?;
                shared += &format!("STAND_IN_SHARED({count}, {alignment}, {name}, {size})\n");
                count += 1;
            }
            None => {
                shared += line;
                shared.push('\n');
            }
        }
    }
    Ok((shared, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_threadgroup_memory_is_shared() {
        let text =
            "void walk() {\nalignas(16) threadgroup char a_1[256];\nthreadgroup float* const b = 0;\n}";
        let (shared, count) = share_declared_memory(text).expect("known");
        assert!(shared.contains("STAND_IN_SHARED(0, 16, a_1, 256)\nthreadgroup float* const b"), "{shared}");
        assert_eq!(count, 1);
        assert!(share_declared_memory("alignas(16) threadgroup char a;").is_err());
    }

    #[test]
    fn an_unknown_built_in_is_named() {
        let text = "[[kernel]] void walk(uint const a [[threads_of_a_toaster]]) {}";
        assert!(cpp(text, 0, [1, 1, 1]).unwrap_err().contains("[[threads_of_a_toaster]]"));
    }
}
