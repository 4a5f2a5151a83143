//! Which kernels the operations use.

use burn_rnn::{Strategy, force_strategy};

/// Makes the operations use the strategy called `name` from here on; `auto` leaves them their choice.
pub fn force(name: &str) -> Result<(), String> {
    let strategy: Strategy = name.parse()?;
    force_strategy(strategy);
    Ok(())
}
