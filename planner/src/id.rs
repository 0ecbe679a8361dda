//! Newtypes for every identity, so that two bare integers of different meaning never share a signature.

use crate::error::Fault;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest name of a job, operator, edge or agent, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

fn check_name(kind: &str, name: &str) -> Result<(), Fault> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(legal) {
        return Err(Fault::new("bad_name", "", format!("{kind} '{}' is not a legal name", name.escape_debug()))
            .with_hint("use 1 to 128 letters, digits, '_' or '-'"));
    }
    Ok(())
}

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks and wraps a name.
            ///
            /// Errors: a fault when it is empty, longer than 128 bytes or has an illegal character.
            pub fn new(name: impl Into<String>) -> Result<Self, Fault> {
                let name = name.into();
                check_name($kind, &name)?;
                Ok($name(name))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;
            fn try_from(name: String) -> Result<Self, String> {
                $name::new(name).map_err(|fault| fault.to_string())
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name($int);

        impl $name {
            /// Wraps a number.
            pub const fn new(value: $int) -> Self {
                $name(value)
            }

            /// The number.
            pub const fn get(self) -> $int {
                self.0
            }

            /// The next one.
            #[must_use]
            pub const fn next(self) -> Self {
                $name(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

name_id!(
    /// A job's stable identity, chosen by the user.
    JobId, "job id"
);
name_id!(
    /// An operator's identity within its job.
    OperatorId, "operator id"
);
name_id!(
    /// An edge's identity within its job.
    EdgeId, "edge id"
);
name_id!(
    /// An agent's stable identity.
    AgentId, "agent id"
);

number_id!(
    /// Which submitted JobSpec of a job, from 1.
    JobVersion, u64
);
number_id!(
    /// Rises each time the hub changes what should run.
    Generation, u64
);
number_id!(
    /// A granted right to run; all fencing is by attempt.
    Attempt, u64
);
number_id!(
    /// A checkpoint or savepoint; unique among those of one hub, from 1.
    CheckpointId, u64
);
number_id!(
    /// Hash bucket of keys, `0..max_parallelism`.
    KeyGroup, u32
);
number_id!(
    /// Position of a chain in its plan, from 0.
    ChainId, u32
);
number_id!(
    /// Position of a region in its plan, from 0.
    RegionId, u32
);

/// One parallel instance of an operator; printed as `<operator>-<subtask>` (PLAN-2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// The operator.
    pub operator: OperatorId,
    /// Which instance, from 0.
    pub subtask: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.operator, self.subtask)
    }
}

/// An epoch: comparable only along one lineage of cuts (EPO-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EpochId {
    /// The attempt that opened it.
    pub attempt: Attempt,
    /// Sequence within the attempt, from 1.
    pub sequence: u64,
}

impl fmt::Display for EpochId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.attempt, self.sequence)
    }
}
