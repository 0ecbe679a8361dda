//! `weir state inspect`: what a state store holds, checked and shown, with nothing running.

use crate::config::InspectConfig;
use crate::control::on_control;
use anyhow::Context;
use std::path::Path;
use std::process::ExitCode;
use weir_agent::checkpoint::inspect::{Found, inspect, manifests};
use weir_agent::checkpoint::store::StateStore;

/// Exit code where something is damaged or missing.
const DAMAGED: u8 = 1;

/// Checks the checkpoints that are asked for and prints what is in them. The exit code is 1 where one of them is not whole.
pub fn checkpoints(config: &InspectConfig) -> anyhow::Result<ExitCode> {
    let store = open(&config.place)?;
    on_control(async {
        let mut wanted = manifests(&store).await.map_err(|e| anyhow::anyhow!(e.to_failure().message))?;
        wanted.retain(|(job, number, _)| {
            config.job.as_ref().is_none_or(|only| only == job) && config.checkpoint.is_none_or(|only| only == *number)
        });
        if wanted.is_empty() {
            anyhow::bail!("state store {} has no such checkpoint", store.url());
        }
        let mut damaged = false;
        for (_, _, object) in wanted {
            match inspect(&store, &object, config.entries).await {
                Ok(found) => {
                    print(&found);
                    damaged |= !found.faults.is_empty();
                }
                Err(error) => {
                    println!("damaged     {}", error.to_failure().message);
                    damaged = true;
                }
            }
        }
        Ok(if damaged { ExitCode::from(DAMAGED) } else { ExitCode::SUCCESS })
    })
}

/// A URL, the directory of a state store, or the data directory of an agent, which has one.
fn open(place: &str) -> anyhow::Result<StateStore> {
    let opened = if place.contains("://") {
        StateStore::open(place, crate::config::variable)
    } else {
        // A store that is opened is made: a mistyped name must not be.
        let dir = std::fs::canonicalize(place).with_context(|| place.to_owned())?;
        let dir = [dir.join("agent/checkpoints"), dir.join("checkpoints")].into_iter().find(|own| own.is_dir()).unwrap_or(dir);
        anyhow::ensure!(Path::new(&dir).join("jobs").is_dir(), "{} is no state store: it has no directory 'jobs'", dir.display());
        StateStore::at(&dir)
    };
    opened.map_err(|e| anyhow::anyhow!(e.to_failure().message))
}

fn print(found: &Found) {
    let made = &found.manifest;
    println!("{} {} of job {}, version {}, attempt {}", made.kind, made.id, made.job, made.version, made.attempt);
    for (region, cut) in &made.cuts {
        println!("  region {region}: epoch {}{}", cut.epoch, if cut.ended { ", ended" } else { "" });
        for (source, positions) in &cut.positions {
            println!("    source {source}: {} partitions", positions.len());
        }
    }
    for state in &found.tasks {
        println!(
            "  task {}: {} segments, {} bytes, {} entries of {} keys",
            state.task, state.segments, state.bytes, state.entries, state.keys
        );
        state.shown.iter().for_each(|entry| println!("    {entry}"));
    }
    let rows: u64 = made.results.iter().map(|file| file.rows).sum();
    println!("  results: {} files, {rows} rows", made.results.len());
    for fault in &found.faults {
        println!("  damaged: {fault}");
    }
    let all = found.whole + found.faults.len();
    println!("  {}: {} of {all} files match their checksums", if found.faults.is_empty() { "whole" } else { "DAMAGED" }, found.whole);
}
