//! The command line: verbs, flags, and which of them runs what.

use crate::config::{AgentConfig, BenchConfig, HubConfig, InspectConfig, PlanFormat, RunConfig, StateConfig, UpConfig};
use crate::{bench, document, inspect, local, run};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Exit code of an invalid document or setting (STR-6).
const INVALID: u8 = 2;
/// Exit code of a failed job or process.
const FAILED: u8 = 1;

/// Weir: streaming SQL in one binary.
#[derive(Parser)]
#[command(name = "weir", version, about, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Start everything in one process: Postgres wire, REST, hub and one agent.
    Up(UpConfig),
    /// Start the control plane alone: Postgres wire, REST, and the door for agents.
    Hub(HubConfig),
    /// Start one worker that obeys a hub.
    Agent(AgentConfig),
    /// Run the jobs of a YAML file here, without a hub, until their inputs end.
    Run(RunConfig),
    /// Check a YAML or SQL file without starting anything.
    Validate {
        /// The file: SQL when its name ends in .sql, else YAML.
        file: std::path::PathBuf,
    },
    /// Show the plan of each job of a YAML or SQL file, or of a SQL text.
    Explain {
        /// A file, or SQL text with CREATE SOURCE, CREATE SINK and CREATE JOB statements.
        what: String,
        /// How to print the plans.
        #[arg(long, value_enum, default_value_t = PlanFormat::Text)]
        format: PlanFormat,
    },
    /// List connectors and formats with their options.
    Components,
    /// Look at what jobs have kept, without starting anything.
    State {
        #[command(subcommand)]
        look: Look,
    },
    /// Measure the real path on files of the Nexmark generator.
    Bench {
        #[command(subcommand)]
        suite: Suite,
    },
}

#[derive(Subcommand)]
enum Look {
    /// Check checkpoints in a state store, and list their tasks, sizes, keys and entries.
    Inspect(InspectConfig),
}

#[derive(Subcommand)]
enum Suite {
    /// The auction-site queries.
    Nexmark(BenchConfig),
    /// Bytes that a window with many keys holds, a count and a sum each.
    State(StateConfig),
}

/// Runs a verb to its end.
pub fn dispatch(cli: Cli) -> ExitCode {
    let outcome = match cli.verb {
        Verb::Up(config) => run::up(config),
        Verb::Hub(config) => run::hub(config),
        Verb::Agent(config) => run::agent(config),
        Verb::Run(config) => return local::run_file(&config).unwrap_or_else(|error| fail(&error, FAILED)),
        Verb::Validate { file } => return document::validate(&file).unwrap_or_else(|error| fail(&error, INVALID)),
        Verb::Explain { what, format } => return document::explain(&what, format).unwrap_or_else(|error| fail(&error, INVALID)),
        Verb::State { look: Look::Inspect(config) } => return inspect::checkpoints(&config).unwrap_or_else(|error| fail(&error, FAILED)),
        Verb::Components => document::components(),
        Verb::Bench { suite: Suite::Nexmark(config) } => bench::nexmark(&config),
        Verb::Bench { suite: Suite::State(config) } => bench::state(&config),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, FAILED),
    }
}

fn fail(error: &anyhow::Error, code: u8) -> ExitCode {
    eprintln!("weir: {error:#}");
    ExitCode::from(code)
}
