//! Elementwise operations, conversions, selections, and operations that only move elements.

use super::builder::*;

// tidy: long, because they are lists of cases, one for each operation.
pub(super) fn elementwise(b: &mut Builder) {
    let value = b.any();
    let ty = value.ty();
    let unary: &[&str] = if value.is_float() {
        &[
            "negate",
            "abs",
            "exponential",
            "log",
            "sqrt",
            "rsqrt",
            "tanh",
            "cosine",
            "sine",
            "tan",
            "floor",
            "ceil",
            "sign",
            "cbrt",
            "logistic",
            "log_plus_one",
            "exponential_minus_one",
            "round_nearest_even",
            "round_nearest_afz",
        ]
    } else if value.is_complex() {
        &[
            "negate",
            "exponential",
            "log",
            "sqrt",
            "tanh",
            "cosine",
            "sign",
            "rsqrt",
        ]
    } else if value.is_int() {
        &["negate", "not", "popcnt", "count_leading_zeros"]
    } else if value.element == "i1" {
        &["not"]
    } else {
        &["optimization_barrier"]
    };
    let binary: &[&str] = if value.is_float() {
        &[
            "add",
            "subtract",
            "multiply",
            "divide",
            "remainder",
            "maximum",
            "power",
            "atan2",
        ]
    } else if value.is_int() {
        &[
            "divide",
            "remainder",
            "power",
            "shift_left",
            "shift_right_arithmetic",
            "shift_right_logical",
            "xor",
            "multiply",
            "minimum",
        ]
    } else if value.is_complex() {
        &["add", "multiply", "divide", "power", "atan2"]
    } else {
        &["add", "maximum", "multiply"]
    };
    let other = b.value(|other| other.ty() == ty, &value.element, &value.dims);
    let line = match b.chance(2) {
        true => format!("stablehlo.{} {} : {ty}", b.pick(unary), value.name),
        false => {
            let (first, second) = match b.chance(2) {
                true => (&value, &other),
                false => (&other, &value),
            };
            format!(
                "stablehlo.{} {}, {} : {ty}",
                b.pick(binary),
                first.name,
                second.name
            )
        }
    };
    b.result(&line, &value.element, &value.dims);
}

pub(super) fn convert(b: &mut Builder) {
    let value = b.any();
    let element = b.element();
    if b.chance(4) && value.is_float() {
        let line = format!(
            "stablehlo.reduce_precision {}, format = e{}m{} : {}",
            value.name,
            b.pick(&[1, 2, 5, 8, 11, 30]),
            b.pick(&[0, 1, 3, 10, 23, 52]),
            value.ty()
        );
        b.result(&line, &value.element, &value.dims);
        return;
    }
    let value = b.converted(&value, &element);
    b.values.push(value);
}

fn bits(element: &str) -> i64 {
    let digits: String = match element.starts_with("f8") || element.starts_with("f4") {
        true => element[1..2].into(),
        false => element.chars().filter(char::is_ascii_digit).collect(),
    };
    let bits = digits.parse().unwrap_or(1);
    match element.starts_with("complex") {
        true => 2 * bits,
        false => bits,
    }
}

pub(super) fn bitcast(b: &mut Builder) {
    let value = b.any();
    let element = b.element();
    let (from, to) = (bits(&value.element), bits(&element));
    let mut dims = value.dims.clone();
    if from > to {
        dims.push(from / to);
    } else if from < to {
        dims.pop();
    }
    let line = format!(
        "stablehlo.bitcast_convert {} : ({}) -> {}",
        value.name,
        value.ty(),
        tensor(&element, &dims)
    );
    b.result(&line, &element, &dims);
}

pub(super) fn select(b: &mut Builder) {
    let value = b.any();
    let other = b.value(
        |other| other.ty() == value.ty(),
        &value.element,
        &value.dims,
    );
    let flags = tensor("i1", &value.dims);
    let kind = match value.element.as_str() {
        _ if value.is_float() => b.pick(&["FLOAT", "TOTALORDER"]),
        element if element.starts_with('u') || element == "i1" => "UNSIGNED",
        _ if value.is_int() => "SIGNED",
        _ => "FLOAT",
    };
    let direction = b.pick(&["EQ", "NE", "GE", "GT", "LE", "LT"]);
    let line = format!(
        "stablehlo.compare {direction}, {}, {}, {kind} : ({ty}, {ty}) -> {flags}",
        value.name,
        other.name,
        ty = value.ty()
    );
    let condition = b.result(&line, "i1", &value.dims);
    let line = format!(
        "stablehlo.select {}, {}, {} : {flags}, {}",
        condition.name,
        value.name,
        other.name,
        value.ty()
    );
    b.result(&line, &value.element, &value.dims);
    if b.chance(2) {
        let line = format!(
            "stablehlo.clamp {other}, {value}, {value} : ({ty}, {ty}, {ty}) -> {ty}",
            other = other.name,
            value = value.name,
            ty = value.ty()
        );
        b.result(&line, &value.element, &value.dims);
    }
}

/// Reshapes, transpositions, slices, reversals, concatenations.
pub(super) fn move_about(b: &mut Builder) {
    let value = b.any();
    let (ty, rank) = (value.ty(), value.rank());
    let (line, dims) = match b.random.u32(..6) {
        0 => {
            let dims = vec![value.dims.iter().product()];
            let to = tensor(&value.element, &dims);
            (
                format!("stablehlo.reshape {} : ({ty}) -> {to}", value.name),
                dims,
            )
        }
        1 => {
            let mut order: Vec<i64> = (0..rank as i64).collect();
            b.random.shuffle(&mut order);
            let dims: Vec<i64> = order.iter().map(|at| value.dims[*at as usize]).collect();
            let to = tensor(&value.element, &dims);
            let line = format!(
                "stablehlo.transpose {}, dims = {} : ({ty}) -> {to}",
                value.name,
                list(&order)
            );
            (line, dims)
        }
        2 => {
            let order: Vec<i64> = (0..rank as i64).filter(|_| b.chance(2)).collect();
            (
                format!(
                    "stablehlo.reverse {}, dims = {} : {ty}",
                    value.name,
                    list(&order)
                ),
                value.dims.clone(),
            )
        }
        3 if rank > 0 => {
            let mut dims = Vec::new();
            let mut ranges = Vec::new();
            for size in &value.dims {
                let start = b.random.i64(0..=*size);
                let limit = b.random.i64(start..=*size);
                let stride = b.pick(&[1, 1, 2, 3, 1000]);
                dims.push((limit - start + stride - 1) / stride);
                ranges.push(format!("{start}:{limit}:{stride}"));
            }
            let to = tensor(&value.element, &dims);
            (
                format!(
                    "stablehlo.slice {} [{}] : ({ty}) -> {to}",
                    value.name,
                    ranges.join(", ")
                ),
                dims,
            )
        }
        4 if rank > 0 => {
            let dim = b.random.usize(..rank);
            let mut dims = value.dims.clone();
            dims[dim] *= 2;
            let to = tensor(&value.element, &dims);
            let line = format!(
                "stablehlo.concatenate {0}, {0}, dim = {dim} : ({ty}, {ty}) -> {to}",
                value.name
            );
            (line, dims)
        }
        _ => {
            let mut dims = value.dims.clone();
            let at: Vec<i64> = (1..=rank as i64).collect();
            dims.insert(0, b.pick(&[0, 1, 3]));
            let to = tensor(&value.element, &dims);
            let line = format!(
                "stablehlo.broadcast_in_dim {}, dims = {} : ({ty}) -> {to}",
                value.name,
                list(&at)
            );
            (line, dims)
        }
    };
    b.result(&line, &value.element, &dims);
}
