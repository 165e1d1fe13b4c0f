//! Products, transforms, random numbers, factorizations, batch norm.

use super::builder::*;

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
