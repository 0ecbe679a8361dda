//! Starts Weir: parse, run, exit code.

mod bench;
mod cli;
mod config;
mod control;
mod document;
mod inspect;
mod link;
mod local;
mod ops;
mod run;
mod signal;
mod stack;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let cli = cli::Cli::parse();
    config::init_logs();
    cli::dispatch(cli)
}
