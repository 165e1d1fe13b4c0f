//! How operations lay out their properties: the attributes that belong to what they are.
//!
//! Properties are a sequence of attributes without names, written by code that is generated for
//! each operation; all there is to know is how many there are. An operation of VHLO carries its
//! version in its name and never changes. Those of Shardy do not, which is why only the ones that
//! JAX sends are listed.
//!
//! Promise: an operation that is not listed has no properties, or the module is not understood.
//! Not here: the attributes' names. The operation and the position tell them apart.

use super::layouts::Field;
use super::tables::Dialect;

pub(super) fn layout(dialect: Dialect, name: &[u8]) -> Option<&'static [Field]> {
    match dialect {
        Dialect::Builtin => builtin(name),
        Dialect::Vhlo => ATTRIBUTES.get(..vhlo(name)?),
        Dialect::Sdy => ATTRIBUTES.get(..sdy(name)?),
        Dialect::Other => None,
    }
}

/// As many as the richest operation has, a convolution.
const ATTRIBUTES: &[Field] = &[Field::Attribute; 17];

fn builtin(name: &[u8]) -> Option<&'static [Field]> {
    // A module's name and visibility.
    (name == b"module").then_some(&[Field::Optional, Field::Optional])
}

fn sdy(name: &[u8]) -> Option<usize> {
    Some(match name {
        b"mesh" => 2,
        b"sharding_constraint" | b"reshard" | b"sharding_group" | b"propagation_barrier" => 1,
        b"manual_computation" => 3,
        _ => return None,
    })
}

// tidy: long, because it is a table.
fn vhlo(name: &[u8]) -> Option<usize> {
    Some(match name {
        b"broadcast_in_dim_v1"
        | b"broadcast_v1"
        | b"call_v1"
        | b"cbrt_v2"
        | b"cholesky_v1"
        | b"concatenate_v1"
        | b"constant_v1"
        | b"cosine_v2"
        | b"cross-replica-sum_v1"
        | b"dot_v1"
        | b"dynamic_iota_v1"
        | b"dynamic_slice_v1"
        | b"einsum_v1"
        | b"exponential_minus_one_v2"
        | b"exponential_v2"
        | b"get_dimension_size_v1"
        | b"get_tuple_element_v1"
        | b"iota_v1"
        | b"log_plus_one_v2"
        | b"log_v2"
        | b"logistic_v2"
        | b"map_v1"
        | b"outfeed_v1"
        | b"reduce_v1"
        | b"reverse_v1"
        | b"rng_bit_generator_v1"
        | b"rng_v1"
        | b"rsqrt_v2"
        | b"set_dimension_size_v1"
        | b"sine_v2"
        | b"sqrt_v2"
        | b"tan_v2"
        | b"tanh_v2"
        | b"transpose_v1"
        | b"unary_einsum_v1" => 1,
        b"batch_norm_grad_v1"
        | b"batch_norm_inference_v1"
        | b"batch_norm_training_v1"
        | b"collective_broadcast_v1"
        | b"collective_permute_v1"
        | b"compare_v1"
        | b"fft_v1"
        | b"infeed_v1"
        | b"reduce_precision_v1"
        | b"sort_v1"
        | b"torch_index_select_v1" => 2,
        b"all_reduce_v1"
        | b"all_reduce_v2"
        | b"collective_broadcast_v2"
        | b"dynamic_broadcast_in_dim_v1"
        | b"pad_v1"
        | b"recv_v1"
        | b"select_and_scatter_v1"
        | b"send_v1"
        | b"slice_v1" => 3,
        b"all_gather_v1"
        | b"all_gather_v2"
        | b"collective_reduce_v1"
        | b"composite_v1"
        | b"composite_v2"
        | b"recv_v2"
        | b"reduce_scatter_v1"
        | b"send_v2"
        | b"triangular_solve_v1" => 4,
        b"all_to_all_v1" | b"all_to_all_v2" | b"dot_general_v1" | b"dynamic_gather_v1"
        | b"func_v1" | b"reduce_window_v1" => 5,
        b"gather_v1" | b"scatter_v1" => 6,
        b"dynamic_gather_v2" => 7,
        b"custom_call_v1" | b"gather_v2" | b"scatter_v2" => 8,
        b"custom_call_v2" => 9,
        b"dot_general_v2" => 12,
        b"dynamic_conv_v2" => 16,
        b"convolution_v1" | b"dynamic_conv_v1" => 17,
        _ => return None,
    })
}
