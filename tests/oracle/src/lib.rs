//! Naive recomputation of what Weir computes, sharing no code with it.
