//! The arguments of a kernel, read off its text.
//!
//! CubeCL orders them anew in each run, so each is told by its attribute.

/// What an argument is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The buffer of this number.
    Buffer(usize),
    /// The attribute without a number, as `thread_index_in_threadgroup`.
    BuiltIn(String),
    /// Threadgroup memory, which naga hands to the entry point.
    Threadgroup,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its type, address space and all, as in `device float*`.
    pub kind: String,
    /// What it is bound to.
    pub bound: Bound,
}

/// A kernel's name and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Its name.
    pub name: String,
    /// Its arguments, in the order of the text.
    pub arguments: Vec<Argument>,
}

impl Signature {
    /// Reads the signature of the one kernel in `text`, which has `buffers` of them before its info.
    pub fn read(text: &str, buffers: usize) -> Result<Self, String> {
        let marks = ["[[kernel]] void ", " kernel void ", "\nkernel void "];
        let mut starts =
            marks.iter().flat_map(|mark| text.match_indices(mark).map(|(at, _)| at + mark.len()));
        let start = starts.next().ok_or("there is no kernel in the text")?;
        if starts.next().is_some() {
            return Err("there is more than one kernel in the text".into());
        }
        let rest = &text[start..];
        let open = rest.find('(').ok_or("the kernel has no arguments")?;
        let close = matching(rest, open)?;
        let arguments = split(&rest[open + 1..close])
            .into_iter()
            .map(|argument| Argument::read(argument, buffers))
            .collect::<Result<_, _>>()?;
        Ok(Self { name: rest[..open].trim().into(), arguments })
    }
}

impl Argument {
    fn read(text: &str, buffers: usize) -> Result<Self, String> {
        let (declaration, attribute) = match text.split_once("[[") {
            Some((declaration, attribute)) => {
                let attribute = attribute.trim_end().strip_suffix("]]").ok_or("an attribute has no end")?;
                (declaration.trim(), Some(attribute.trim()))
            }
            None => (text.trim(), None),
        };
        // The name is the last word.
        let name =
            declaration.rfind(|letter: char| !letter.is_alphanumeric() && letter != '_').map(|at| at + 1);
        let kind = declaration[..name.ok_or_else(|| format!("`{text}` has no type"))?].trim();
        let bound = match attribute {
            Some(attribute) => {
                match attribute.strip_prefix("buffer(").and_then(|rest| rest.strip_suffix(')')) {
                    Some(number) => Bound::Buffer(
                        number.parse().map_err(|_| format!("`{attribute}` is not the number of a buffer"))?,
                    ),
                    None => Bound::BuiltIn(attribute.into()),
                }
            }
            None if kind.starts_with("threadgroup ") => Bound::Threadgroup,
            // A buffer without a number gets the next one that is free: CubeCL's info.
            None => Bound::Buffer(buffers),
        };
        Ok(Self { kind: kind.into(), bound })
    }
}

/// Where the bracket that opens at `open` closes.
fn matching(text: &str, open: usize) -> Result<usize, String> {
    let mut depth = 0;
    for (at, letter) in text.char_indices().skip_while(|(at, _)| *at < open) {
        match letter {
            '(' => depth += 1,
            ')' if depth == 1 => return Ok(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    Err("the kernel's arguments have no end".into())
}

/// Splits at commas outside brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start) = (0, 0);
    let mut parts = Vec::new();
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '[' | '<' => depth += 1,
            ')' | ']' | '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(kind: &str, bound: Bound) -> Argument {
        Argument { kind: kind.into(), bound }
    }

    #[test]
    fn cubecl_text_is_read() {
        let text = "struct a {};\n[[max_total_threads_per_threadgroup(64)]] [[kernel]] void walk(device float* const \
                    b_0 [[buffer(1)]], uint3 const g [[threadgroup_position_in_grid]], \
                    device atomic<uint32_t>* const c [[buffer(0)]], constant info_st* const info) {\n";
        let signature = Signature::read(text, 2).expect("valid");
        assert_eq!(signature.name, "walk");
        assert_eq!(
            signature.arguments,
            [
                argument("device float* const", Bound::Buffer(1)),
                argument("uint3 const", Bound::BuiltIn("threadgroup_position_in_grid".into())),
                argument("device atomic<uint32_t>* const", Bound::Buffer(0)),
                argument("constant info_st* const", Bound::Buffer(2)),
            ]
        );
    }

    #[test]
    fn naga_text_is_read() {
        let text = "struct walkInput {\n};\n[[max_total_threads_per_threadgroup(5)]] kernel void walk(\n  uint i [[thread_index_in_threadgroup]]\n, device \
                    type_3 const& in [[buffer(0)]]\n, threadgroup type_4& shared\n) {\n";
        let signature = Signature::read(text, 1).expect("valid");
        assert_eq!(
            signature.arguments,
            [
                argument("uint", Bound::BuiltIn("thread_index_in_threadgroup".into())),
                argument("device type_3 const&", Bound::Buffer(0)),
                argument("threadgroup type_4&", Bound::Threadgroup),
            ]
        );
    }

    #[test]
    fn text_without_a_kernel_is_refused() {
        assert!(Signature::read("void walk() {}", 0).unwrap_err().contains("no kernel"));
        assert!(Signature::read("[[kernel]] void a() {} [[kernel]] void b() {}", 0).is_err());
    }
}
