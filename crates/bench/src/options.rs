//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::problem::{Cell, Precision, Set, Shape};

/// Times burn-rnn's GRU and RNN, forward and training, beside its peers. No time is printed for a result
/// that differs from a reference in 64-bit floats.
#[derive(Parser, Debug)]
#[command(name = "bench", version, args_conflicts_with_subcommands = true)]
pub struct CommandLine {
    /// What to do instead of timing.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What to time.
    #[command(flatten)]
    pub timing: TimingOptions,
}

/// What to do instead of timing.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Draws the times of the files that --json wrote, and of peers, as an SVG.
    Plot(PlotOptions),
    /// Writes the times of the files that --json wrote, and of peers in them, as Markdown tables.
    Table(TableOptions),
}

/// What to draw.
#[derive(Args, Debug)]
pub struct PlotOptions {
    /// Files of --json or of a peer; the first one's shapes are drawn.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// The file to write.
    #[arg(long, default_value = "bench.svg")]
    pub out: PathBuf,
}

/// What to write as tables.
#[derive(Args, Debug)]
pub struct TableOptions {
    /// Files of --json.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// The file to write [default: standard output].
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// What to time.
#[derive(Args, Debug)]
pub struct TimingOptions {
    /// flex, wgpu, vulkan, metal, webgpu, cuda, rocm or cpu, with `:1` for the second one.
    #[arg(long, required = true)]
    pub device: Option<String>,
    /// Element type of all tensors.
    #[arg(long, value_enum, default_value = "f32")]
    pub dtype: Precision,
    /// The cell.
    #[arg(long, value_enum, default_value = "gru")]
    pub cell: Cell,
    /// Batch rows, steps, input features and hidden units; may be given more than once.
    #[arg(long, value_name = "N,T,I,H")]
    pub shape: Vec<Shape>,
    /// A list of shapes: ten for a GPU or six for a CPU.
    #[arg(long, value_enum)]
    pub set: Option<Set>,
    /// Runs both directions.
    #[arg(long)]
    pub bidirectional: bool,
    /// burn-nn times Burn's own layer beside it; a file of times is compared with. May be given more than once.
    #[arg(long, value_name = "burn-nn|FILE.json", value_parser = parse_peer)]
    pub peer: Vec<Peer>,
    /// The kernels to use.
    #[arg(long, value_name = "auto|NAME", default_value = "auto")]
    pub strategy: String,
    /// Writes the times to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Times a single step with the state passed on, as a streaming model runs it; 1,1,256,256 unless --shape says
    /// otherwise.
    #[arg(long)]
    pub step: bool,
    /// Threads of the CPU backend [default: all].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
}

/// What to compare with.
#[derive(Clone, Debug, PartialEq)]
pub enum Peer {
    /// Burn's own layer, timed on the same device.
    BurnNn,
    /// Times measured elsewhere.
    File(PathBuf),
}

fn parse_peer(text: &str) -> Result<Peer, String> {
    Ok(match text {
        "burn-nn" => Peer::BurnNn,
        file => Peer::File(file.into()),
    })
}

impl TimingOptions {
    /// The shapes to time, those of the set first.
    pub fn shapes(&self) -> Result<Vec<Shape>, String> {
        let of_set = self.set.map_or(&[][..], Set::shapes);
        let shapes: Vec<Shape> = of_set.iter().chain(&self.shape).copied().collect();
        match (shapes.is_empty(), self.step) {
            (true, true) => Ok(vec![Shape { n: 1, t: 1, i: 256, h: 256 }]),
            (true, false) => Err("nothing to time: give --shape N,T,I,H or --set grid|cpu".into()),
            (false, true) if shapes.iter().any(|shape| shape.t != 1) => {
                Err("--step runs one step: give shapes with T = 1".into())
            }
            (false, _) => Ok(shapes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<CommandLine, clap::Error> {
        CommandLine::try_parse_from(arguments.split_whitespace())
    }

    #[test]
    fn shapes_come_from_the_set_and_from_options() {
        let options = parse("bench --device flex --set cpu --shape 1,2,3,4 --shape 5,6,7,8").expect("valid");
        let shapes = options.timing.shapes().expect("some");
        assert_eq!(shapes.len(), 8);
        assert_eq!(shapes[7], Shape { n: 5, t: 6, i: 7, h: 8 });
        assert_eq!(Set::Grid.shapes().len(), 10);
    }

    #[test]
    fn what_is_missing_or_wrong_is_said() {
        let shapes = |arguments| parse(arguments).expect("valid").timing.shapes();
        assert!(shapes("bench --device flex").unwrap_err().contains("--shape"));
        assert!(shapes("bench --device flex --step --shape 1,2,3,4").unwrap_err().contains("T = 1"));
        assert_eq!(shapes("bench --device flex --step").expect("a default")[0].h, 256);
        assert!(parse("bench --shape 1,2,3,4").unwrap_err().to_string().contains("--device"));
        let error = parse("bench --device flex --shape 1,2,3").unwrap_err().to_string();
        assert!(error.contains("got `1,2,3`"), "{error}");
    }

    #[test]
    fn a_peer_is_the_layer_or_a_file() {
        let options = parse("bench --device flex --shape 1,1,1,1 --peer burn-nn --peer cudnn.json");
        let peers = options.expect("valid").timing.peer;
        assert_eq!(peers, [Peer::BurnNn, Peer::File("cudnn.json".into())]);
    }

    #[test]
    fn plots_need_no_device() {
        let options = parse("bench plot a.json b.json --out c.svg").expect("valid");
        assert!(matches!(options.command, Some(Command::Plot(plot)) if plot.files.len() == 2));
    }
}
