//! Which kernels the operations use.

/// Makes the operations use the strategy called `name` from here on; `auto` leaves them their choice.
pub fn force(name: &str) -> Result<(), String> {
    match name {
        "auto" => Ok(()),
        other => Err(format!("there is no strategy `{other}`; there is auto")),
    }
}
