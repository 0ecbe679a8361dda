//! The pure decider of a region's epochs: events and now in, actions out (EPO-2, EPO-3).
