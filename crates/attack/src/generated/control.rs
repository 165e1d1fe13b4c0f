//! Loops that count, branches with wild indices, calls and tuples.

use super::builder::*;

/// Loops in loops; all of them together make at most some thousand turns.
pub(super) fn nested_loops(b: &mut Builder) {
    let value = b.value(|value| value.is_int() || value.is_float(), "f32", &[16]);
    let depth = b.random.usize(1..5);
    let turns = b.pick(&[0, 1, 2, 5]);
    let ty = value.ty();
    let limit = b.set(
        &format!("stablehlo.constant dense<{turns}> : tensor<i32>"),
        "i32",
        &[],
    );
    let zero = b.set("stablehlo.constant dense<0> : tensor<i32>", "i32", &[]);
    let one = b.set("stablehlo.constant dense<1> : tensor<i32>", "i32", &[]);
    let operation = b.pick(&["add", "multiply", "subtract", "maximum"]);
    let number = b.next;
    b.next += 1;
    let mut text = String::new();
    for level in 0..depth {
        let init = match level {
            0 => value.name.clone(),
            _ => format!("%x{number}_{}", level - 1),
        };
        text += &format!(
            "%l{number}_{level}:2 = stablehlo.while(%i{number}_{level} = {}, %x{number}_{level} = {init}) : tensor<i32>, {ty}\n\
             cond {{ %c = stablehlo.compare LT, %i{number}_{level}, {} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n\
             stablehlo.return %c : tensor<i1> }} do {{\n",
            zero.name, limit.name
        );
    }
    for level in (0..depth).rev() {
        let inner = match level + 1 == depth {
            true => {
                text += &format!(
                    "%w = stablehlo.{operation} %x{number}_{level}, {} : {ty}\n",
                    value.name
                );
                "%w".to_owned()
            }
            false => format!("%l{number}_{}#1", level + 1),
        };
        text += &format!(
            "%n{level} = stablehlo.add %i{number}_{level}, {} : tensor<i32>\n\
             stablehlo.return %n{level}, {inner} : tensor<i32>, {ty} }}\n",
            one.name
        );
    }
    b.line(&text);
    b.values.push(Value {
        name: format!("%l{number}_0#1"),
        ..value
    });
}

pub(super) fn branch(b: &mut Builder) {
    let value = b.any();
    let ty = value.ty();
    let other = b.value(|other| other.ty() == ty, &value.element, &value.dims);
    let index = b.index_scalar("i32");
    let count = b.random.usize(1..5);
    let regions: Vec<String> = (0..count)
        .map(|at| {
            let name = if at % 2 == 0 {
                &value.name
            } else {
                &other.name
            };
            format!("{{ stablehlo.return {name} : {ty} }}")
        })
        .collect();
    let line = format!(
        "\"stablehlo.case\"({}) ({}) : (tensor<i32>) -> {ty}",
        index.name,
        regions.join(", ")
    );
    b.result(&line, &value.element, &value.dims);
}

pub(super) fn map(b: &mut Builder) {
    let value = b.value(|value| value.is_int() || value.is_float(), "i32", &[33]);
    let scalar = tensor(&value.element, &[]);
    let all: Vec<i64> = (0..value.rank() as i64).collect();
    let line = format!(
        "\"stablehlo.map\"({0}, {0}) ({{\n    ^bb0(%x: {scalar}, %y: {scalar}):\n    \
         %r = stablehlo.divide %x, %y : {scalar}\n    stablehlo.return %r : {scalar}\n  }}) \
         {{dimensions = {1}}} : ({2}, {2}) -> {2}",
        value.name,
        array(&all),
        value.ty()
    );
    b.result(&line, &value.element, &value.dims);
}

pub(super) fn tuple(b: &mut Builder) {
    let (first, second) = (b.any(), b.any());
    let ty = format!("tuple<{}, {}>", first.ty(), second.ty());
    let made = b.name();
    b.line(&format!(
        "{made} = stablehlo.tuple {}, {} : {ty}",
        first.name, second.name
    ));
    let line = format!(
        "stablehlo.get_tuple_element {made}[1] : ({ty}) -> {}",
        second.ty()
    );
    b.result(&line, &second.element, &second.dims);
}

/// A function; now and then one that calls itself without end, which must not compile.
pub(super) fn call(b: &mut Builder) {
    let value = b.any();
    let ty = value.ty();
    let number = b.next;
    b.next += 1;
    let inner = match b.chance(6) {
        true => format!("func.call @f{number}(%x) : ({ty}) -> {ty}"),
        false => format!("stablehlo.optimization_barrier %x : {ty}"),
    };
    b.functions += &format!(
        "func.func private @f{number}(%x: {ty}) -> {ty} {{\n  %r = {inner}\n  return %r : {ty}\n}}\n"
    );
    let line = format!("func.call @f{number}({}) : ({ty}) -> {ty}", value.name);
    b.result(&line, &value.element, &value.dims);
}
