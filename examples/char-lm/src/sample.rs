//! Text that a model writes.

use burn::tensor::{Device, Int, Tensor};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{Model, text::Vocabulary};

/// Lets `model` go on from `prompt` by `length` characters, each drawn by its probability at `temperature`;
/// 0 takes the likeliest.
///
/// # Errors
///
/// If a score can't be read from the device.
pub fn sample(
    model: &Model,
    vocabulary: &Vocabulary,
    prompt: &str,
    length: usize,
    temperature: f64,
    seed: u64,
    device: &Device,
) -> anyhow::Result<String> {
    let mut random = StdRng::seed_from_u64(seed);
    let characters: Vec<char> = prompt.chars().collect();
    let mut text = String::from(prompt);
    let mut numbers = vocabulary.numbers(&characters);
    if numbers.is_empty() {
        // Something to go on from that isn't shown.
        numbers = vocabulary.numbers(&['\n']);
    }

    let mut next = Vec::new();
    let mut state = None;
    for number in numbers {
        (next, state) = scores(model, number, state, device)?;
    }
    for _ in 0..length {
        let number = draw(&next, temperature, &mut random);
        text.push(vocabulary.character(number));
        (next, state) = scores(model, number as i32, state, device)?;
    }
    Ok(text)
}

/// The scores of the character after `number`, and the state.
fn scores(
    model: &Model,
    number: i32,
    state: Option<Tensor<3>>,
    device: &Device,
) -> anyhow::Result<(Vec<f32>, Option<Tensor<3>>)> {
    let (scores, state) = model.step(Tensor::<1, Int>::from_data([number], device), state);
    let scores = scores.try_into_data()?.iter::<f32>().collect();
    Ok((scores, Some(state)))
}

/// Draws a number by the softmax of its score over `temperature`. Never the first, which stands for rare
/// characters.
fn draw(scores: &[f32], temperature: f64, random: &mut StdRng) -> usize {
    let likeliest = (1..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap_or(0);
    if temperature == 0.0 {
        return likeliest;
    }
    let weight = |score: f32| (f64::from(score - scores[likeliest]) / temperature).exp();
    let sum: f64 = scores[1..].iter().map(|&score| weight(score)).sum();
    let mut left = random.random::<f64>() * sum;
    for (number, &score) in scores.iter().enumerate().skip(1) {
        left -= weight(score);
        if left < 0.0 {
            return number;
        }
    }
    likeliest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_drawn_by_their_probability() {
        let scores = [9.0, 2f32.ln(), 0.0, f32::NEG_INFINITY];
        let mut random = StdRng::seed_from_u64(1);
        let mut counts = [0; 4];
        for _ in 0..3000 {
            counts[draw(&scores, 1.0, &mut random)] += 1;
        }
        assert_eq!(counts[0] + counts[3], 0);
        assert!((1900..2100).contains(&counts[1]), "two in three of 3000, got {counts:?}");

        let mut counts = [0; 4];
        for _ in 0..3000 {
            counts[draw(&scores, 0.5, &mut random)] += 1;
        }
        assert!((2300..2500).contains(&counts[1]), "four in five of 3000, got {counts:?}");
        assert_eq!(draw(&scores, 0.0, &mut random), 1);
    }
}
