//! Elementwise operations, conversions, products, transforms, random numbers, factorizations.

use super::*;

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

pub(super) fn dot(b: &mut Builder) {
    let element = b.element();
    let mut size = || b.pick(&[0, 1, 2, 3, 7, 16, 33, 64]);
    let (batch, m, k, n) = (size() % 4, size(), size(), size());
    let (mut left, mut right) = (vec![m, k], vec![k, n]);
    let mut dims = vec![m, n];
    let batched = b.chance(3);
    if batched {
        left.insert(0, batch);
        right.insert(0, batch);
        dims.insert(0, batch);
    }
    let left = b.value(
        |value| value.element == element && value.dims == left,
        &element,
        &left,
    );
    let right = b.value(
        |value| value.element == element && value.dims == right,
        &element,
        &right,
    );
    let (batching, contracting) = match batched {
        true => ("batching_dims = [0] x [0], ", "[2] x [1]"),
        false => ("", "[1] x [0]"),
    };
    let result = match b.chance(3) {
        true => b.pick(&["f32", "i32", "f64"]).to_owned(),
        false => element.clone(),
    };
    let precision = b.pick(&["", ", precision = [HIGHEST, HIGH]"]);
    let line = format!(
        "stablehlo.dot_general {}, {}, {batching}contracting_dims = {contracting}{precision} : ({}, {}) -> {}",
        left.name,
        right.name,
        left.ty(),
        right.ty(),
        tensor(&result, &dims)
    );
    b.result(&line, &result, &dims);
}

pub(super) fn fft(b: &mut Builder) {
    let kind = b.pick(&["FFT", "IFFT", "RFFT", "IRFFT"]);
    let wide = b.pick(&["f32", "f64"]);
    let complex = format!("complex<{wide}>");
    let over = b.random.usize(1..4);
    let mut dims: Vec<i64> = (0..over).map(|_| b.pick(&[0, 1, 2, 3, 5, 8, 17])).collect();
    if b.chance(3) {
        dims.insert(0, b.pick(&[0, 2]));
    }
    let length: Vec<i64> = dims[dims.len() - over..].to_vec();
    let halved = |dims: &[i64]| {
        let mut dims = dims.to_vec();
        if let Some(last) = dims.last_mut() {
            *last = if *last == 0 { 0 } else { *last / 2 + 1 };
        }
        dims
    };
    let (from, into, to, out) = match kind {
        "RFFT" => (wide.to_owned(), dims.clone(), complex, halved(&dims)),
        "IRFFT" => (complex, halved(&dims), wide.to_owned(), dims.clone()),
        _ => (complex.clone(), dims.clone(), complex, dims.clone()),
    };
    let value = b.value(
        |value| value.element == from && value.dims == into,
        &from,
        &into,
    );
    let line = format!(
        "stablehlo.fft {}, type = {kind}, length = {} : ({}) -> {}",
        value.name,
        list(&length),
        value.ty(),
        tensor(&to, &out)
    );
    b.result(&line, &to, &out);
}

pub(super) fn random_numbers(b: &mut Builder) {
    let dims = b.dims();
    if b.chance(3) {
        let element = b.pick(&["f32", "f64", "i32", "ui32", "i64", "bf16"]);
        let (low, high) = (b.index_or_number(element), b.index_or_number(element));
        let shape: Vec<String> = dims.iter().map(i64::to_string).collect();
        let shape = match shape.is_empty() {
            true => "stablehlo.constant dense<> : tensor<0xi64>".to_owned(),
            false => format!(
                "stablehlo.constant dense<[{}]> : tensor<{}xi64>",
                shape.join(", "),
                shape.len()
            ),
        };
        let shape = b.set(&shape, "i64", &[dims.len() as i64]);
        let kind = match element.contains('f') {
            true => b.pick(&["UNIFORM", "NORMAL"]),
            false => "UNIFORM",
        };
        let line = format!(
            "stablehlo.rng {}, {}, {}, distribution = {kind} : ({e}, {e}, {}) -> {}",
            low.name,
            high.name,
            shape.name,
            shape.ty(),
            tensor(element, &dims),
            e = tensor(element, &[])
        );
        b.result(&line, element, &dims);
        return;
    }
    let state = vec![b.pick(&[1, 2, 3, 2])];
    let element = b.pick(&["ui32", "ui64", "i32", "ui8", "f32", "f64", "i64", "ui16"]);
    let value = b.value(
        |value| value.element == "ui64" && value.dims == state,
        "ui64",
        &state,
    );
    let algorithm = b.pick(&["DEFAULT", "THREE_FRY", "PHILOX"]);
    let line = format!(
        "\"stablehlo.rng_bit_generator\"({}) {{rng_algorithm = #stablehlo<rng_algorithm {algorithm}>}} : ({}) -> ({}, {})",
        value.name,
        value.ty(),
        value.ty(),
        tensor(element, &dims)
    );
    b.results(&line, &[("ui64".into(), state), (element.into(), dims)]);
}

pub(super) fn linear_algebra(b: &mut Builder) {
    let element = b.pick(&["f32", "f64", "complex<f32>", "complex<f64>"]);
    let n = b.pick(&[0, 1, 2, 3, 8, 17, 40]);
    let mut dims = vec![n, n];
    if b.chance(3) {
        dims.insert(0, b.pick(&[0, 1, 3]));
    }
    let a = b.value(
        |value| value.element == element && value.dims == dims,
        element,
        &dims,
    );
    let lower = b.chance(2);
    if b.chance(2) {
        let line = format!(
            "stablehlo.cholesky {}, lower = {lower} : {}",
            a.name,
            a.ty()
        );
        b.result(&line, element, &dims);
        return;
    }
    let left = b.chance(2);
    let mut other = dims.clone();
    let rank = other.len();
    other[if left { rank - 1 } else { rank - 2 }] = b.pick(&[0, 1, 5]);
    let c = b.value(
        |value| value.element == element && value.dims == other,
        element,
        &other,
    );
    let line = format!(
        "\"stablehlo.triangular_solve\"({}, {}) {{left_side = {left}, lower = {lower}, unit_diagonal = {}, \
         transpose_a = #stablehlo<transpose {}>}} : ({}, {}) -> {}",
        a.name,
        c.name,
        b.chance(2),
        b.pick(&["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]),
        a.ty(),
        c.ty(),
        c.ty()
    );
    b.result(&line, element, &other);
}

pub(super) fn batch_norm(b: &mut Builder) {
    let element = b.pick(FLOATS);
    let dims = vec![b.pick(&[0, 1, 3]), b.pick(&[0, 2, 5]), b.pick(&[1, 4])];
    let feature = b.random.usize(..3);
    let value = b.value(
        |value| value.element == element && value.dims == dims,
        element,
        &dims,
    );
    let one = b.fresh(element, &[dims[feature]]);
    let epsilon = b.pick(&["0.0", "-1.0", "1.0e-3"]);
    let (ty, of) = (value.ty(), one.ty());
    let (a, s) = (&value.name, &one.name);
    if b.chance(2) {
        let line = format!(
            "\"stablehlo.batch_norm_training\"({a}, {s}, {s}) {{epsilon = {epsilon} : f32, feature_index = {feature} : i64}} \
             : ({ty}, {of}, {of}) -> ({ty}, {of}, {of})"
        );
        let e = element.to_owned();
        let small = vec![dims[feature]];
        b.results(
            &line,
            &[(e.clone(), dims), (e.clone(), small.clone()), (e, small)],
        );
    } else {
        let line = format!(
            "\"stablehlo.batch_norm_inference\"({a}, {s}, {s}, {s}, {s}) {{epsilon = {epsilon} : f32, \
             feature_index = {feature} : i64}} : ({ty}, {of}, {of}, {of}, {of}) -> {ty}"
        );
        b.result(&line, element, &dims);
    }
}

impl Builder {
    /// A bound of random numbers, right or wrong way round, finite or not.
    fn index_or_number(&mut self, element: &str) -> Value {
        match element.contains('f') {
            true => self.constant(element, &[]),
            false => self.index_scalar(element),
        }
    }
}
