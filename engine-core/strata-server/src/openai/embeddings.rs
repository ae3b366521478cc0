//! `POST /v1/embeddings`, for models that give any.

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;
use strata_diag::catalogue::serving::UNSUPPORTED;

use crate::api_error::ApiError;
use crate::drive::{self, Context};
use crate::fields::Fields;
use crate::room::Room;
use crate::{body, router};

const MOST_TEXTS: usize = 2048;

pub(crate) async fn answer(context: Context, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let json = body::json(request, context.app.options.most_body).await?;
    let inputs = read(&json, &*context.room)?;
    let room = Arc::clone(&context.room);
    if !room.facts().embeds {
        let message = format!("`{}` writes text; it gives no embeddings", room.facts().model);
        return Err(ApiError::new(StatusCode::BAD_REQUEST, UNSUPPORTED, message)
            .about("model")
            .named("unsupported_value")
            .hint("serve an embedding model to use this path"));
    }
    let _places = context.app.places(&*room, inputs.len())?;
    let worker = Arc::clone(&room);
    let vectors = drive::blocking(move || {
        let embed = |tokens: &Vec<u32>| Ok((worker.embed(tokens)?, tokens.len()));
        inputs.iter().map(embed).collect::<Result<Vec<_>, ApiError>>()
    });
    let vectors = vectors.await??;
    let tokens: usize = vectors.iter().map(|(_, tokens)| tokens).sum();
    let entry = |(index, (vector, _)): (usize, &(Vec<f32>, usize))| json!({ "object": "embedding", "index": index, "embedding": vector });
    Ok(router::json(&json!({
        "object": "list",
        "data": vectors.iter().enumerate().map(entry).collect::<Vec<_>>(),
        "model": room.facts().model,
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })))
}

fn read(json: &Value, room: &dyn Room) -> Result<Vec<Vec<u32>>, ApiError> {
    let mut fields = Fields::of(json, "")?;
    fields.text("model")?;
    let texts = match fields.value("input") {
        None => return Err(fields.missing("input")),
        Some(_) => fields.texts("input", MOST_TEXTS)?,
    };
    if texts.is_empty() || texts.iter().any(String::is_empty) {
        return Err(ApiError::field("input", "`input` holds no text, or an empty one"));
    }
    fields.word("encoding_format", &["float"])?;
    if fields.whole("dimensions", 1..=u64::MAX)?.is_some() {
        return Err(ApiError::unsupported("dimensions", "the length of this model's embeddings is fixed"));
    }
    fields.ignore(&["user"]);
    fields.finish()?;
    Ok(texts.iter().map(|text| room.tokenize(text)).collect())
}
