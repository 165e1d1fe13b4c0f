//! Every message survives the wire, and no bytes make decoding panic or allocate without reason.

mod blobs;
mod check;
mod frames;
mod refusals;
mod samples;
