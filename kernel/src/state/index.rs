//! Key to group number, for the keys of one window: group numbers count up from 0.

use crate::envelope::broken;
use crate::error::Error;
use crate::route::key::Encoded;
use crate::state::decode::decode;
use crate::state::pages::{Pages, Runs};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::sync::Arc;
use weir_planner::error::Class;
use weir_planner::keygroup;

/// Groups of one window.
pub enum Index {
    /// No key columns: one group once a row came.
    Single {
        /// 0 or 1.
        len: usize,
    },
    /// One integer column.
    Integer {
        /// Type of the column.
        ty: DataType,
        /// Key of each group; 0 for the NULL group.
        keys: Pages<i64>,
        /// Finds a group by key.
        table: HashTable<u32>,
        /// Group of the NULL key.
        null: Option<u32>,
    },
    /// Anything else: keys as the law encodes them, so that equal keys have equal bytes
    /// (-0 is 0, every NaN is one).
    Encoded {
        /// Types of the columns.
        types: Vec<DataType>,
        /// Encoded key of each group.
        keys: Runs,
        /// Finds a group by key.
        table: HashTable<u32>,
    },
}

impl Index {
    /// An empty index for key columns of these types.
    pub fn new(types: &[DataType]) -> Self {
        match types {
            [] => Index::Single { len: 0 },
            [ty @ (DataType::Int16 | DataType::Int32 | DataType::Int64)] => {
                Index::Integer { ty: ty.clone(), keys: Pages::default(), table: HashTable::new(), null: None }
            }
            _ => Index::Encoded { types: types.to_vec(), keys: Runs::default(), table: HashTable::new() },
        }
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        match self {
            Index::Single { len } => *len,
            Index::Integer { keys, .. } => keys.len(),
            Index::Encoded { keys, .. } => keys.len(),
        }
    }

    /// No groups.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts the group of each of `rows` rows into `groups`, adding groups for new keys.
    /// `scratch` is overwritten.
    pub fn assign(&mut self, key_columns: &[ArrayRef], rows: usize, scratch: &mut Encoded, groups: &mut Vec<u32>) -> Result<(), Error> {
        groups.clear();
        match self {
            Index::Single { len } => {
                *len = (*len).max(usize::from(rows > 0));
                groups.resize(rows, 0);
            }
            Index::Integer { keys, table, null, .. } => {
                let wide = cast(&key_columns[0], &DataType::Int64).map_err(broken)?;
                let values = wide.as_primitive::<Int64Type>();
                groups.reserve(rows);
                if values.null_count() == 0 {
                    groups.extend(values.values().iter().map(|key| integer_group(keys, table, *key)));
                } else {
                    for row in 0..rows {
                        groups.push(if values.is_null(row) {
                            *null.get_or_insert_with(|| {
                                keys.push(0);
                                keys.len() as u32 - 1
                            })
                        } else {
                            integer_group(keys, table, values.value(row))
                        });
                    }
                }
            }
            Index::Encoded { keys, table, .. } => {
                scratch.encode(key_columns, rows)?;
                groups.reserve(rows);
                for (row, hash) in scratch.hashes().iter().enumerate() {
                    groups.push(encoded_group(keys, table, *hash, scratch.key(row)));
                }
            }
        }
        Ok(())
    }

    /// Puts the group here of each listed group of `other`, which has keys of the same types, into
    /// `groups`, adding groups for new keys.
    pub fn assign_from(&mut self, other: &Index, listed: &[u32], groups: &mut Vec<u32>) -> Result<(), Error> {
        groups.clear();
        groups.reserve(listed.len());
        match (self, other) {
            (Index::Single { len }, Index::Single { .. }) => {
                *len = (*len).max(usize::from(!listed.is_empty()));
                groups.resize(listed.len(), 0);
            }
            (Index::Integer { keys, table, null, .. }, Index::Integer { keys: theirs, null: their_null, .. }) => {
                for group in listed {
                    groups.push(if *their_null == Some(*group) {
                        *null.get_or_insert_with(|| {
                            keys.push(0);
                            keys.len() as u32 - 1
                        })
                    } else {
                        integer_group(keys, table, theirs.get(*group))
                    });
                }
            }
            (Index::Encoded { keys, table, .. }, Index::Encoded { keys: theirs, .. }) => {
                for group in listed {
                    let key = theirs.get(*group);
                    groups.push(encoded_group(keys, table, keygroup::hash(key), key));
                }
            }
            (Index::Single { .. } | Index::Integer { .. } | Index::Encoded { .. }, _) => {
                return Err(Error::new(Class::Bug, "groups of other key types cannot be merged"));
            }
        }
        Ok(())
    }

    /// The group here of each group of `other`, which has keys of the same types, where there is one.
    pub fn find_from(&self, other: &Index) -> Result<Vec<Option<u32>>, Error> {
        match (self, other) {
            (Index::Single { len }, Index::Single { len: theirs }) => Ok(vec![(*len > 0).then_some(0); *theirs]),
            (Index::Integer { keys, table, null, .. }, Index::Integer { keys: theirs, null: their_null, .. }) => {
                let find = |(group, key): (usize, i64)| {
                    if *their_null == Some(group as u32) {
                        return *null;
                    }
                    table.find(spread(key as u64), |mine| keys.get(*mine) == key).copied()
                };
                Ok(theirs.iter().enumerate().map(find).collect())
            }
            (Index::Encoded { keys, table, .. }, Index::Encoded { keys: theirs, .. }) => {
                let find = |group: u32| {
                    let key = theirs.get(group);
                    table.find(spread(keygroup::hash(key)), |mine| keys.get(*mine) == key).copied()
                };
                Ok((0..theirs.len() as u32).map(find).collect())
            }
            (Index::Single { .. } | Index::Integer { .. } | Index::Encoded { .. }, _) => {
                Err(Error::new(Class::Bug, "groups of other key types cannot be found"))
            }
        }
    }

    /// The keys as they are now, which cannot be looked up. Copies none.
    pub fn snapshot(&mut self) -> Index {
        match self {
            Index::Single { len } => Index::Single { len: *len },
            Index::Integer { ty, keys, null, .. } => {
                Index::Integer { ty: ty.clone(), keys: keys.snapshot(), table: HashTable::new(), null: *null }
            }
            Index::Encoded { types, keys, .. } => Index::Encoded { types: types.clone(), keys: keys.snapshot(), table: HashTable::new() },
        }
    }

    /// Forgets every group and keeps the room.
    pub fn clear(&mut self) {
        match self {
            Index::Single { len } => *len = 0,
            Index::Integer { keys, table, null, .. } => {
                keys.clear();
                table.clear();
                *null = None;
            }
            Index::Encoded { keys, table, .. } => {
                keys.clear();
                table.clear();
            }
        }
    }

    /// Key columns of the listed groups.
    pub fn keys(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        match self {
            Index::Single { .. } => Ok(Vec::new()),
            Index::Integer { ty, keys, null, .. } => {
                let values = groups.iter().map(|group| keys.get(*group)).collect::<Vec<i64>>();
                let nulls =
                    null.filter(|null| groups.contains(null)).map(|null| groups.iter().map(|group| *group != null).collect::<NullBuffer>());
                let wide = Int64Array::new(values.into(), nulls);
                Ok(vec![cast(&(Arc::new(wide) as ArrayRef), ty).map_err(broken)?])
            }
            Index::Encoded { types, keys, .. } => decode(types, groups.iter().map(|group| keys.get(*group))),
        }
    }

    /// Hash of each listed group by the key law.
    pub fn hashes(&self, groups: &[u32]) -> Vec<u64> {
        match self {
            Index::Single { .. } => vec![keygroup::hash(&[]); groups.len()],
            Index::Integer { keys, null, .. } => {
                let hash_null = {
                    let mut encoded = Vec::new();
                    keygroup::put_null(&mut encoded);
                    keygroup::hash(&encoded)
                };
                let hash = |group: &u32| if *null == Some(*group) { hash_null } else { keygroup::hash_integer(keys.get(*group)) };
                groups.iter().map(hash).collect()
            }
            Index::Encoded { keys, .. } => groups.iter().map(|group| keygroup::hash(keys.get(*group))).collect(),
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        match self {
            Index::Single { .. } => 0,
            Index::Integer { keys, table, .. } => keys.bytes() + table.allocation_size(),
            Index::Encoded { keys, table, .. } => keys.bytes() + table.allocation_size(),
        }
    }
}

/// Spreads bits for the table. Routing has already fixed `hash mod max_parallelism` for a task, so
/// the low bits of the law's hash must not be the table's bits as they are.
#[inline]
pub(super) fn spread(value: u64) -> u64 {
    let wide = u128::from(value ^ 0x9E37_79B9_7F4A_7C15) * u128::from(0xD6E8_FEB8_6659_FD93_u64);
    wide as u64 ^ (wide >> 64) as u64
}

#[inline]
fn integer_group(keys: &mut Pages<i64>, table: &mut HashTable<u32>, key: i64) -> u32 {
    let same = |group: &u32| keys.get(*group) == key;
    match table.entry(spread(key as u64), same, |group| spread(keys.get(*group) as u64)) {
        Entry::Occupied(found) => *found.get(),
        Entry::Vacant(free) => {
            let group = keys.len() as u32;
            free.insert(group);
            keys.push(key);
            group
        }
    }
}

/// The group of a key with this hash by the key law, made when there is none.
pub(super) fn encoded_group(keys: &mut Runs, table: &mut HashTable<u32>, hash: u64, key: &[u8]) -> u32 {
    match table.entry(spread(hash), |group| keys.get(*group) == key, |group| spread(keygroup::hash(keys.get(*group)))) {
        Entry::Occupied(found) => *found.get(),
        Entry::Vacant(free) => {
            let group = keys.len() as u32;
            free.insert(group);
            keys.push(key);
            group
        }
    }
}

#[cfg(test)]
mod tests;
