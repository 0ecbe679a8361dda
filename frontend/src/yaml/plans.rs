//! Golden files: YAML to plan, as text, and for some as JSON and DOT too. `WEIR_GOLDEN=write` writes
//! them anew: read what changed against PLAN-2, PLAN-3 and JOB-5 before it is kept.

use std::path::{Path, PathBuf};
use weir_planner::compile::compile;
use weir_planner::explain;
use weir_planner::plan::partial::{Obstacle, obstacle};
use weir_planner::plan::{JobPlan, Port, Routing, Work};
use weir_planner::spec::{Horizon, JobSpec};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

fn planned(path: &Path) -> (JobSpec, JobPlan) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut document = super::parse(&text).unwrap_or_else(|faults| panic!("{}: {faults:?}", path.display()));
    assert_eq!(document.bind(), [], "{}", path.display());
    let [spec] = document.jobs.as_slice() else { panic!("{} holds one job", path.display()) };
    let plan = compile(spec, Horizon::Local).unwrap_or_else(|faults| panic!("{}: {faults}", path.display()));
    (spec.clone(), plan)
}

/// JOB-1, JOB-9, PLAN-1: a plan as text is what its file says; as JSON and DOT where there are files.
#[test]
fn plans_are_as_the_golden_files_say() {
    let write = std::env::var("WEIR_GOLDEN").is_ok_and(|value| value == "write");
    let mut wrong = Vec::new();
    let files = files();
    assert!(files.len() >= 40, "only {} plans", files.len());
    let mut others = 0;
    for path in &files {
        let (_, plan) = planned(path);
        let json = serde_json::to_string_pretty(&super::masked(&explain::json(&plan))).unwrap() + "\n";
        for (ending, found) in [("txt", explain::text(&plan)), ("json", json), ("dot", explain::dot(&plan))] {
            let file = path.with_extension(ending);
            if ending != "txt" && !file.exists() {
                continue;
            }
            others += usize::from(ending != "txt");
            if write {
                std::fs::write(&file, &found).unwrap();
            } else if std::fs::read_to_string(&file).ok().as_deref() != Some(found.as_str()) {
                wrong.push(format!("{}:\n{found}", file.display()));
            }
        }
    }
    assert!(others >= 20, "only {others} plans as JSON or DOT");
    assert!(wrong.is_empty(), "golden files differ (WEIR_GOLDEN=write writes them anew):\n{}", wrong.join("\n"));
}

/// PLAN-1: the same spec gives the same bytes, read a second time, and as it is stored.
#[test]
fn equal_specs_give_equal_bytes() {
    for path in files() {
        let (spec, plan) = planned(&path);
        let first = serde_json::to_vec(&plan).unwrap();
        assert_eq!(first, serde_json::to_vec(&planned(&path).1).unwrap(), "{}", path.display());
        let stored: JobSpec = serde_json::from_slice(&serde_json::to_vec(&spec).unwrap()).unwrap();
        assert_eq!(first, serde_json::to_vec(&compile(&stored, Horizon::Local).unwrap()).unwrap(), "{}", path.display());
        assert_eq!(serde_json::from_slice::<JobPlan>(&first).unwrap(), plan, "{}", path.display());
    }
}

/// The golden files show every kind of operator and edge, and each reason for one stage that a
/// spec can give.
#[test]
fn the_golden_files_cover_every_kind() {
    let (mut works, mut edges, mut reasons) = ([false; 9], [false; 8], [false; 4]);
    for path in files() {
        let (_, plan) = planned(&path);
        for operator in plan.operators() {
            let at = match &operator.work {
                Work::Source(_) => 0,
                Work::Map(_) => 1,
                Work::Window(_) => 2,
                Work::Partial(_) => 3,
                Work::Batch(_) => 4,
                Work::Buffer(_) => 5,
                Work::Union => 6,
                Work::Sink(_) => 7,
                Work::Top(_) => 8,
            };
            works[at] = true;
        }
        for edge in &plan.edges {
            let routing = match edge.routing {
                Routing::Forward => 0,
                Routing::Partitioned(_) => 1,
                Routing::RoundRobin => 2,
                Routing::Broadcast => 3,
                Routing::Deal => 4,
                Routing::Collect => 5,
            };
            edges[routing] = true;
            match edge.port {
                Port::Main => {}
                Port::Error(_) => edges[6] = true,
                Port::Late(_) => edges[7] = true,
            }
        }
        for chain in &plan.chains {
            match obstacle(&plan, chain.id) {
                Some(Obstacle::NotShuffled) => reasons[0] = true,
                Some(Obstacle::LateRouted) => reasons[1] = true,
                Some(Obstacle::SharedProducer(_)) => reasons[2] = true,
                Some(Obstacle::ErrorsRouted) => reasons[3] = true,
                // The planner's own tests have these.
                Some(Obstacle::Updates | Obstacle::Sessions | Obstacle::OwnRows | Obstacle::NotMergeable(_)) | None => {}
            }
        }
    }
    assert_eq!((works, edges, reasons), ([true; 9], [true; 8], [true; 4]));
}
