//! EXPLAIN CREATE JOB: the logical plan, the spec and the physical plan; nothing is created.

use super::lower::Lowered;
use super::statement::ExplainFormat;
use crate::error::{Error, sqlstate};
use crate::yaml as printed;
use weir_planner::explain;
use weir_planner::plan::JobPlan;

/// The text of an EXPLAIN.
///
/// Errors: `XX000` when JSON cannot be written.
pub(crate) fn text(format: ExplainFormat, lowered: &Lowered, plan: &JobPlan, notices: &[String]) -> Result<String, Error> {
    Ok(match format {
        ExplainFormat::Text => {
            let mut text = format!(
                "Logical plan\n{}\n\nJobSpec\n{}\n\nJobPlan\n{}",
                lowered.logical,
                printed::print(&lowered.spec).trim_end(),
                explain::text(plan).trim_end()
            );
            for notice in notices {
                text.push_str(&format!("\nnote: {notice}"));
            }
            text
        }
        ExplainFormat::Json => serde_json::to_string_pretty(&printed::masked(&explain::json(plan)))
            .map_err(|error| Error::new(sqlstate::INTERNAL_ERROR, error.to_string()))?,
        ExplainFormat::Dot => explain::dot(plan),
        ExplainFormat::Yaml => printed::print(&lowered.spec),
    })
}
