//! How rows find their subtask: forward, by key group, in turn, or to all; small pieces are
//! gathered and full edges remembered, within one batch a target.

pub mod gather;
pub mod key;

use crate::edge::Sender;
use crate::envelope::{Data, Envelope};
use crate::error::Error;
use arrow::array::UInt32Array;
use gather::Gather;
use key::Encoded;
use std::collections::VecDeque;
use weir_planner::plan::{Routing, key_group_range};

/// Which of an edge's senders a row goes to.
enum Rule {
    /// The only one that is wired: forward, or a single consumer.
    One,
    /// By key group of these columns.
    Keyed { columns: Vec<usize>, max_parallelism: u32, owners: Vec<u32> },
    /// Whole batches in turn.
    Turn(usize),
    /// Everything to all.
    All,
}

struct Target {
    sender: Sender,
    /// `None` where each batch goes on as it is, an empty one too (STR-5).
    gather: Option<Gather>,
    /// What the edge had no room for; bounded by what one envelope of the chain comes to.
    held: VecDeque<Envelope>,
}

/// One outgoing edge of a chain instance.
pub struct Output {
    rule: Rule,
    targets: Vec<Target>,
    encoded: Encoded,
    rows_of: Vec<Vec<u32>>,
}

impl Output {
    /// An edge to `senders`: all subtasks of the consumer, or the one of the same number when
    /// forward. `columns` are the key positions in the rows.
    pub fn new(routing: &Routing, columns: Vec<usize>, max_parallelism: u32, senders: Vec<Sender>) -> Self {
        let consumers = senders.len() as u32;
        let rule = match routing {
            Routing::Forward => Rule::One,
            Routing::Broadcast => Rule::All,
            Routing::Partitioned(_) | Routing::RoundRobin if consumers == 1 => Rule::One,
            Routing::RoundRobin | Routing::Deal => Rule::Turn(0),
            Routing::Collect => Rule::One,
            Routing::Partitioned(_) => {
                let owner_of = |subtask: u32| key_group_range(max_parallelism, consumers, subtask).map(move |_| subtask);
                Rule::Keyed { columns, max_parallelism, owners: (0..consumers).flat_map(owner_of).collect() }
            }
        };
        let gathers = !matches!(routing, Routing::Deal | Routing::Collect);
        let target = |sender| Target { sender, gather: gathers.then(Gather::default), held: VecDeque::new() };
        let rows_of = vec![Vec::new(); senders.len()];
        Output { rule, targets: senders.into_iter().map(target).collect(), encoded: Encoded::default(), rows_of }
    }

    /// The same edge without putting batches together: inside a lane every batch counts (STR-5).
    #[must_use]
    pub fn batch_by_batch(mut self) -> Self {
        self.targets.iter_mut().for_each(|target| target.gather = None);
        self
    }

    /// Whether everything that was accepted has found room.
    pub fn flush(&mut self) -> bool {
        // Each one is flushed, also after one that is full.
        self.targets.iter_mut().map(Target::flush).filter(|flushed| !flushed).count() == 0
    }

    /// Takes an envelope that the chain emits; call only after [`Output::flush`] was true.
    /// A mark goes to every consumer, after the rows before it.
    pub fn accept(&mut self, envelope: Envelope) -> Result<(), Error> {
        match envelope {
            Envelope::Data(data) => self.accept_data(data),
            Envelope::Watermark(_) | Envelope::Idle | Envelope::Active | Envelope::Barrier(_) | Envelope::End => {
                for target in &mut self.targets {
                    target.gathered()?;
                    target.held.push_back(envelope.clone());
                    target.flush();
                }
                Ok(())
            }
        }
    }

    /// Sends what is being gathered: nothing more will come for now. True when there was any.
    pub fn settle(&mut self) -> Result<bool, Error> {
        let mut any = false;
        for target in &mut self.targets {
            any |= target.gathered()?;
            target.flush();
        }
        Ok(any)
    }

    fn accept_data(&mut self, data: Data) -> Result<(), Error> {
        match &mut self.rule {
            Rule::One => self.targets[0].put(data),
            Rule::All => self.targets.iter_mut().try_for_each(|target| target.put(data.clone())),
            Rule::Turn(next) => {
                let turn = *next;
                *next = (turn + 1) % self.targets.len();
                self.targets[turn].put(data)
            }
            Rule::Keyed { columns, max_parallelism, owners } => {
                let keys: Vec<_> = columns.iter().map(|i| data.rows.column(*i).clone()).collect();
                self.encoded.hash(&keys, data.len())?;
                self.rows_of.iter_mut().for_each(Vec::clear);
                let groups = u64::from(*max_parallelism);
                // A power of two spares the division of each row.
                let mask = groups.is_power_of_two().then(|| groups - 1);
                for (row, hash) in self.encoded.hashes().iter().enumerate() {
                    let group = mask.map_or_else(|| hash % groups, |mask| hash & mask);
                    self.rows_of[owners[group as usize] as usize].push(row as u32);
                }
                for (target, rows) in self.targets.iter_mut().zip(&self.rows_of) {
                    if rows.len() == data.len() {
                        target.put(data.clone())?;
                    } else if !rows.is_empty() {
                        target.put(data.take(&UInt32Array::from_iter_values(rows.iter().copied()))?)?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl Target {
    fn put(&mut self, data: Data) -> Result<(), Error> {
        match &mut self.gather {
            None => self.held.push_back(Envelope::Data(data)),
            Some(gather) => {
                gather.put(data)?;
                while let Some(data) = gather.pop() {
                    self.held.push_back(Envelope::Data(data));
                }
            }
        }
        self.flush();
        Ok(())
    }

    fn gathered(&mut self) -> Result<bool, Error> {
        match self.gather.as_mut().map(Gather::rest).transpose()?.flatten() {
            None => Ok(false),
            Some(data) => {
                self.held.push_back(Envelope::Data(data));
                Ok(true)
            }
        }
    }

    fn flush(&mut self) -> bool {
        while let Some(envelope) = self.held.pop_front() {
            if let Err(envelope) = self.sender.send(envelope) {
                self.held.push_front(envelope);
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
