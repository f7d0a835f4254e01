"""Classification of the services' errors by their real messages."""

from __future__ import annotations

import pytest

from bot.llm.provider_service import ErrorKind, ProviderError, classify, classify_for_images

SAID = [
    # Too long: OpenAI, vLLM, llama.cpp, LiteLLM, OpenRouter, Mistral, Anthropic
    (ErrorKind.TOO_LONG, 400, {"code": "context_length_exceeded", "message": "Too much."}),
    (ErrorKind.TOO_LONG, 400, {"message": "Your input exceeds the context window of this model. Please adjust it."}),
    (
        ErrorKind.TOO_LONG,
        400,
        {"message": "This model's maximum context length is 4096 tokens. However, you requested"},
    ),
    (
        ErrorKind.TOO_LONG,
        400,
        {"message": "The decoder prompt (length 9) is longer than the maximum model length of 8."},
    ),
    (ErrorKind.TOO_LONG, 400, {"type": "exceed_context_size_error", "message": "the request exceeds it"}),
    (ErrorKind.TOO_LONG, 400, {"message": "the request exceeds the available context size, try increasing it"}),
    (
        ErrorKind.TOO_LONG,
        400,
        {"message": "litellm.ContextWindowExceededError: too much", "type": "None", "code": "400"},
    ),
    (ErrorKind.TOO_LONG, 400, {"message": "This endpoint's maximum context length is 8192 tokens."}),
    (
        ErrorKind.TOO_LONG,
        400,
        {"message": "Prompt contains 9 tokens, too large for model with 8 maximum context length"},
    ),
    (ErrorKind.TOO_LONG, 400, {"message": "Please reduce the length of the messages or completion."}),
    (ErrorKind.TOO_LONG, 400, {"message": "prompt is too long: 210000 tokens > 200000 maximum"}),
    (
        ErrorKind.TOO_LONG,
        400,
        {"message": "input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000"},
    ),
    (ErrorKind.TOO_LONG, 413, {"type": "request_too_large", "message": "Request exceeds the maximum size"}),
    (
        ErrorKind.TOO_LONG,
        429,
        {"code": "rate_limit_exceeded", "message": "Request too large for gpt on tokens per min"},
    ),
    (ErrorKind.TOO_LONG, 200, {"code": "context_length_exceeded", "message": "Your input exceeds it"}),
    (ErrorKind.TOO_LONG, 400, {"message": "Input is too long for requested model."}),  # Bedrock
    (
        ErrorKind.TOO_LONG,
        400,
        {"message": "Invalid request: Your request exceeded model token limit: 8192"},
    ),  # Moonshot
    (ErrorKind.TOO_LONG, 400, {"message": "Prompt exceeds max length"}),  # Zhipu
    (ErrorKind.TOO_LONG, 400, {"message": "Range of input length should be [1, 30720]"}),  # Qwen
    (ErrorKind.TOO_LONG, 400, {"message": "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000"}),  # TGI
    (
        ErrorKind.TOO_LONG,
        400,
        {"message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."},
    ),
    (
        ErrorKind.TOO_LONG,
        400,
        {"message": "Input tokens exceed the configured limit", "code": "context_length_exceeded"},
    ),
    (
        ErrorKind.TOO_LONG,
        400,
        {"message": "Provider returned error", "metadata": {"raw": '{"message": "prompt is too long: 9 > 8"}'}},
    ),
    # Overload and outages
    (ErrorKind.BUSY, 429, {"code": "rate_limit_exceeded", "message": "Rate limit reached for gpt"}),
    (ErrorKind.BUSY, 429, {"type": "rate_limit_error", "message": "This would exceed your rate limit of 9 tokens"}),
    (ErrorKind.BUSY, 200, {"code": "rate_limit_exceeded", "message": "Slow down."}),
    (ErrorKind.OUT_OF_ORDER, 200, {"type": "overloaded_error", "message": "Overloaded"}),
    (ErrorKind.OUT_OF_ORDER, 503, {"message": "The server is overloaded or not ready yet."}),
    (ErrorKind.OUT_OF_ORDER, 200, {"code": "server_error", "message": "An error occurred."}),
    (ErrorKind.OUT_OF_ORDER, 500, {"message": "context length exceeded in worker"}),
    (ErrorKind.OUT_OF_ORDER, 200, {"message": "odd"}),
    # Money
    (ErrorKind.CREDIT, 429, {"code": "insufficient_quota", "message": "You exceeded your current quota"}),
    (ErrorKind.CREDIT, 400, {"type": "invalid_request_error", "message": "Your credit balance is too low to access"}),
    (ErrorKind.CREDIT, 402, {"message": "Insufficient credits. Add more"}),
    (ErrorKind.CREDIT, 429, {"message": "litellm.RateLimitError: insufficient_quota", "type": "None", "code": "429"}),
    (ErrorKind.CREDIT, 402, {"message": "Insufficient Balance"}),
    (
        ErrorKind.BUSY,
        429,
        {"message": "Requests to the model have exceeded the token rate limit", "code": "429"},
    ),  # Azure
    (ErrorKind.CREDIT, 403, {"message": "Key limit exceeded (total limit)."}),  # OpenRouter
    (ErrorKind.CREDIT, 400, {"message": "Budget exceeded", "type": "budget_exceeded", "code": "400"}),  # LiteLLM
    (ErrorKind.CREDIT, 429, {"message": "Billing hard limit has been reached"}),
    (ErrorKind.CREDIT, 403, {"message": "Your team has reached its monthly spending limit"}),  # xAI
    (ErrorKind.CREDIT, 429, {"message": "Your account balance is insufficient"}),
    (ErrorKind.CREDIT, 400, {"message": "Make sure your account is in good standing.", "code": "Arrearage"}),  # Qwen
    # An address that has moved
    (ErrorKind.MOVED, 307, {"message": ""}),
    # Images and documents
    (ErrorKind.ATTACHMENTS, 400, {"message": "Could not process image"}),
    (ErrorKind.ATTACHMENTS, 400, {"code": "invalid_image_format", "message": "Odd."}),
    (ErrorKind.ATTACHMENTS, 400, {"message": "messages.0.content.1.pdf: The PDF specified was not valid."}),
    # Key and model
    (ErrorKind.KEY, 401, {"code": "invalid_api_key", "message": "Incorrect API key provided"}),
    (ErrorKind.KEY, 401, {"type": "authentication_error", "message": "invalid x-api-key"}),
    (ErrorKind.KEY, 403, {"type": "permission_error", "message": "not for you"}),
    (ErrorKind.MODEL, 404, {"type": "not_found_error", "message": "model: claude-9"}),
    (ErrorKind.MODEL, 404, {"code": "model_not_found", "message": "The model `gpt-9` does not exist"}),
    (ErrorKind.MODEL, 404, {"message": 'model "llama9" not found, try pulling it first'}),
    (ErrorKind.KEY, 400, {"message": "API key not valid. Please pass a valid API key."}),  # Gemini
    (ErrorKind.KEY, 400, {"message": "API key expired. Please renew the API key."}),
    (ErrorKind.REQUEST, 400, {"message": "Invalid schema for function 'look': 'api_key' is missing"}),
    (ErrorKind.MODEL, 400, {"message": "x/y is not a valid model ID"}),  # OpenRouter
    (ErrorKind.MODEL, 400, {"message": "Invalid model name passed in model=x. Call `/v1/models`"}),  # LiteLLM
    (ErrorKind.MODEL, 400, {"message": "Invalid model: x", "type": "invalid_model", "code": "1500"}),  # Mistral
    (ErrorKind.MODEL, 400, {"message": "Model Not Exist"}),  # DeepSeek
    (ErrorKind.MODEL, 400, {"message": "The provided model identifier is invalid."}),  # Bedrock
    (ErrorKind.MODEL, 400, {"message": "The model `x` has been decommissioned and is no longer supported."}),  # Groq
    (ErrorKind.MODEL, 400, {"message": "No models loaded. Please load a model"}),  # LM Studio
    (ErrorKind.MODEL, 404, {"code": "DeploymentNotFound", "message": "It does not exist."}),  # Azure
    (ErrorKind.MODEL, 410, {"message": "The model is gone."}),
    # Content
    (ErrorKind.FILTERED, 400, {"code": "content_filter", "message": "The response was filtered"}),
    (ErrorKind.FILTERED, 400, {"message": "Output blocked by content filtering policy"}),
    (ErrorKind.FILTERED, 200, {"code": "invalid_prompt", "message": "Invalid prompt: flagged"}),
    # Tools that the model cannot use
    (ErrorKind.NO_TOOLS, 400, {"message": "registry.ollama.ai/library/gemma:2b does not support tools"}),
    (ErrorKind.NO_TOOLS, 404, {"message": "No endpoints found that support tool use."}),
    (ErrorKind.NO_TOOLS, 400, {"message": '"auto" tool choice requires --enable-auto-tool-choice to be set'}),
    (
        ErrorKind.NO_TOOLS,
        400,
        {"message": "`tool calling` is not supported with this model: tool calling is not supported"},
    ),
    (ErrorKind.NO_TOOLS, 500, {"message": "tools param requires --jinja flag"}),  # llama.cpp
    (ErrorKind.NO_TOOLS, 400, {"message": "Unrecognized request arguments supplied: tool_choice, tools"}),
    (ErrorKind.NO_TOOLS, 400, {"message": "Unsupported parameter: 'tools' is not supported with this model."}),
    (ErrorKind.NO_TOOLS, 400, {"message": "Tool use has not been enabled, because it is unsupported by llama-2"}),
    (ErrorKind.NO_TOOLS, 422, {"detail": [{"loc": ["body", "tools"], "msg": "Extra inputs are not permitted"}]}),
    (ErrorKind.REQUEST, 400, {"message": "Unsupported parameter: 'tools[0].function.strict'"}),
    # Reasoning of another model
    (ErrorKind.REASONING, 400, {"code": "invalid_encrypted_content", "message": "could not be verified"}),
    (ErrorKind.REASONING, 400, {"message": "Encrypted content is not supported with this model."}),
    (ErrorKind.REASONING, 400, {"message": "messages.1.content.0: Invalid `signature` in `thinking` block"}),
    (ErrorKind.REASONING, 400, {"message": "Item 'rs_1' of type 'reasoning' was provided without its required item."}),
    (ErrorKind.TOKEN_LIMIT, 400, {"message": "Unsupported parameter: 'max_tokens' is not supported with this model."}),
    (ErrorKind.TOKEN_LIMIT, 400, {"message": "Unrecognized request argument supplied: max_tokens"}),
    (ErrorKind.TOKEN_LIMIT, 422, {"detail": [{"loc": ["body", "max_tokens"], "msg": "Inputs are not permitted"}]}),
    (ErrorKind.TOKEN_LIMIT, 400, {"message": "This model does not support max_tokens"}),
    # Parts of a request that not every service knows
    (ErrorKind.OUTPUT_LIMIT, 400, {"message": "max_tokens=8192 cannot be greater than max_model_len=4096"}),
    (ErrorKind.OUTPUT_LIMIT, 400, {"message": "max output tokens exceeds limit 8192"}),
    (ErrorKind.OUTPUT_LIMIT, 400, {"message": "max_output_tokens should not exceed 8192"}),
    (ErrorKind.OUTPUT_LIMIT, 400, {"message": "max_tokens is limited to 4096 for this model"}),
    (ErrorKind.OUTPUT_LIMIT, 400, {"message": "max_tokens is too large: 9000. This model supports at most 4096"}),
    (
        ErrorKind.OUTPUT_LIMIT,
        400,
        {"message": "max_tokens: 16384 > 8192, which is the maximum allowed number of output"},
    ),
    (ErrorKind.OUTPUT_LIMIT, 400, {"message": "`max_completion_tokens` must be less than or equal to `8192`"}),
    (ErrorKind.OUTPUT_LIMIT, 400, {"message": "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"}),
    (
        ErrorKind.OUTPUT_LIMIT,
        400,
        {
            "message": "'max_tokens' or 'max_completion_tokens' is too large: 16384. This model's maximum context"
            " length is 8192 tokens and your request has 1000 input tokens"
        },
    ),
    (
        ErrorKind.OUTPUT_LIMIT,
        400,
        {
            "message": "This model's maximum context length is 4096 tokens. However, you requested 8207 tokens"
            " (15 in the messages, 8192 in the completion)."
        },
    ),
    (ErrorKind.OUTPUT_LIMIT, 400, {"message": "Range of max_tokens should be [1, 8192]"}),  # Qwen
    (ErrorKind.OUTPUT_LIMIT, 400, {"message": "it has a maxOutputTokens value of 9 but the range is from 1 to 8"}),
    (ErrorKind.OUTPUT_LIMIT, 400, {"message": "Invalid 'max_tokens': integer above maximum value."}),
    (ErrorKind.STREAM_OPTIONS, 422, {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs"}]}),
    (ErrorKind.STREAM_OPTIONS, 400, {"message": "Unrecognized request argument supplied: stream_options"}),
    (ErrorKind.CACHE_MARKS, 400, {"message": "cache_control: Extra inputs are not permitted"}),
    (ErrorKind.EFFORT, 400, {"message": "Unsupported parameter: 'reasoning.effort' is not supported with this model."}),
    (ErrorKind.EFFORT, 400, {"message": "Unrecognized request argument supplied: reasoning_effort"}),
    (ErrorKind.EFFORT, 400, {"message": "Unsupported value.", "param": "reasoning_effort"}),
    (ErrorKind.EFFORT, 400, {"message": "adaptive thinking is not supported on this model"}),
    (ErrorKind.EFFORT, 400, {"message": '"qwen2.5:7b" does not support thinking'}),
    (ErrorKind.EFFORT, 400, {"message": "Budget 0 is invalid. This model only works in thinking mode."}),  # Gemini
    (ErrorKind.EFFORT, 400, {"message": "thinking: Input tag 'adaptive' found using 'type' does not match"}),
    (ErrorKind.EFFORT, 400, {"message": "Reasoning is mandatory for this endpoint and cannot be disabled."}),
    # The order of messages, as templates want it
    (ErrorKind.ROLES, 500, {"message": "Jinja Exception: Conversation roles must alternate at row 1"}),
    (ErrorKind.ROLES, 400, {"message": "Unexpected role 'user' after role 'tool'"}),  # Mistral
    (ErrorKind.ROLES, 400, {"message": "Conversation roles must alternate user/assistant/user/assistant/..."}),
    (ErrorKind.ROLES, 400, {"message": "System message must be at the beginning."}),
    (ErrorKind.NO_SYSTEM, 400, {"message": "Developer instruction is not enabled for models/gemma-3-27b-it"}),
    (ErrorKind.NO_SYSTEM, 500, {"message": "Jinja Exception: System role not supported"}),
    (ErrorKind.NO_SYSTEM, 400, {"message": "System messages are not supported by this model."}),
    # A call that the service could not read: it is asked again
    (ErrorKind.FAILED_CALL, 400, {"code": "tool_use_failed", "message": "Failed to call a function."}),
    (ErrorKind.FAILED_CALL, 400, {"message": "Failed to call a function. See 'failed_generation' for more details."}),
    (ErrorKind.FAILED_CALL, 400, {"message": "Tool call validation failed: tool call validation failed"}),
    (ErrorKind.FAILED_CALL, 500, {"message": "error parsing tool call: raw='{', err=unexpected end of JSON input"}),
    (ErrorKind.FAILED_CALL, 400, {"code": "output_parse_failed", "message": "Parsing failed."}),
    # A denial is never a passing trouble
    (ErrorKind.KEY, 401, {"code": "rate_limit_exceeded", "message": "No."}),
    (ErrorKind.KEY, 401, {"type": "server_error", "message": "Unauthorized"}),
    (ErrorKind.KEY, 403, {"type": "overloaded_error", "message": "Forbidden"}),
    (ErrorKind.KEY, 200, {"code": "401", "message": "Unauthorized"}),
    # Everything else
    (ErrorKind.REQUEST, 400, {"code": "invalid_function_parameters", "message": "Invalid schema for function 'look'"}),
    (ErrorKind.REQUEST, 400, {"message": "messages: at least one message is required"}),
    (ErrorKind.REQUEST, 400, {"message": "This model does not support tool_choice 'none'."}),
    (ErrorKind.REQUEST, 400, {"message": "tools.3.custom.input_schema: input_schema does not support oneOf"}),
    (ErrorKind.REQUEST, 422, {"detail": "Unprocessable"}),
    (ErrorKind.REQUEST, 200, {"code": 400, "message": "Bad."}),
]


@pytest.mark.parametrize(
    ("problem", "status", "error"),
    SAID,
    ids=lambda value: value["message"][:30] if isinstance(value, dict) and "message" in value else None,
)
def test_known_errors_of_services_are_classified(problem: ErrorKind, status: int, error: dict[str, object]) -> None:
    assert classify(ProviderError.from_response(status, {"error": error})) is problem
    assert classify(ProviderError.from_response(status, error)) is problem


UNSEEING = [
    (400, "Invalid content type. image_url is only supported by certain models."),  # OpenAI
    (400, "At most 0 image(s) may be provided in one prompt."),  # vLLM
    (400, "m is not a multimodal model"),
    (400, "Model does not support images. Please use a model that does."),  # LM Studio
    (400, "Vision add-on is not loaded, but images were provided for processing"),
    (400, "'content' field must be a string or an array of objects"),
    (500, "this model is missing data required for image input"),  # Ollama
    (400, "Image input modality is not enabled for models/small"),  # Gemini
    (404, "No endpoints found that support image input"),  # OpenRouter
    (400, "'messages.0' : for 'role:user' the following must be satisfied: messages[0].content must be a string"),
    (422, "Failed to deserialize the JSON body: unknown variant `image_url`, expected `text` at line 1"),  # DeepSeek
    (422, "messages[0]: invalid type: sequence, expected a string at line 1 column 9"),
    (400, "Model mistral-small does not support image input"),
    (422, "body.messages.0.content: Input should be a valid string"),
    (
        500,
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
    ),  # llama.cpp
    (400, "unsupported content[].type"),
    (422, "data did not match any variant of untagged enum MessageContent"),  # TGI
    (400, "litellm.BadRequestError: VertexAI - model doesn't support vision"),  # LiteLLM
    (400, "This model doesn't support the image field. Remove image and try again."),  # Bedrock
    (400, "Image inputs are not supported by this model."),  # xAI
    (400, "This is a text-only model."),
    (400, "Only text content is supported"),
    (400, "multimodal is disabled on this server"),
    (500, "failed to process inputs: this model is missing data required for image input"),  # Ollama
    (400, "This model only supports text."),
    (400, "content parts other than text are not supported"),
    (400, "The model does not support vision. Supported formats: text"),
    (422, "body.messages.0.content: str type expected"),
    (500, 'can only concatenate str (not "list") to str'),  # a template
    (400, "Image inputs require a vision model"),
    (400, "Please use a vision-capable model to process images"),
    (400, "Please select a model with vision support to send images"),
    (400, "Multimodal input requires a VLM"),
    (400, "This model accepts text input only"),
    (400, "Unable to send images to a model that lacks image support"),
    (400, "Error in processing: model does not support images"),
]
FAULTY = [
    (400, "Could not process image"),
    (400, "image exceeds 5 MB maximum: 9 bytes > 8 bytes"),
    (400, "You uploaded an unsupported image. Please make sure your image has of one the following formats"),
    (400, "At most 4 images may be provided in one request"),
    (400, "Invalid base64 image_url."),
    (400, "Error while downloading the image."),
    (400, "Bad Request"),
    (400, "cannot identify image file <_io.BytesIO object>"),
    (400, "The image must be less than 20MB"),
    (400, "Only png, jpeg, gif and webp images are supported"),
    (400, "Image URL must be https"),
    (400, "The model cannot process more than 4 images."),
]


@pytest.mark.parametrize(
    ("kind", "status", "message"),
    [
        *((ErrorKind.NO_IMAGES, *refusal) for refusal in UNSEEING),
        *((ErrorKind.ATTACHMENTS, *refusal) for refusal in FAULTY),
        (ErrorKind.BUSY, 429, "Rate limit reached for images"),
        (ErrorKind.KEY, 401, "No access to vision models"),
        (ErrorKind.FILTERED, 400, "Your request was rejected by the content policy: flagged as unsafe image"),
    ],
)
def test_of_a_request_with_images_it_is_known_whether_the_model_sees_any(
    kind: ErrorKind, status: int, message: str
) -> None:
    assert classify_for_images(ProviderError(status, message)) is kind


@pytest.mark.parametrize("body", [None, 7, [], {}, {"error": None}, {"error": 7}, {"error": {"message": [7]}}])
def test_a_body_of_another_shape_says_nothing(body: object) -> None:
    complaint = ProviderError.from_response(502, body)
    assert (complaint.message, classify(complaint)) == ("", ErrorKind.OUT_OF_ORDER)


def test_the_only_error_of_a_list_is_the_message() -> None:
    assert ProviderError.from_response(400, [{"error": {"message": "So it is."}}]).message == "So it is."


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted", "type": "extra"}]},
            "body.stream_options: Extra inputs are not permitted",
        ),
        (
            {"object": "error", "message": {"detail": [{"loc": ["body", "n"], "msg": "No."}, {"msg": "Nor this."}]}},
            "body.n: No.; Nor this.",
        ),
        ({"error": "unknown field"}, "unknown field"),
        ({"message": "Bad."}, "Bad."),
        ({"errors": [{"message": "One."}, "Two."]}, "One.; Two."),
        ({"error": {"errors": [{"reason": "Bad."}]}}, "Bad."),
        ({"detail": {"error": {"message": "Deep."}}}, "Deep."),
    ],
)
def test_the_reason_is_found_in_any_usual_place(body: object, reason: str) -> None:
    assert ProviderError.from_response(422, body).message == reason


def test_of_a_long_text_the_beginning_is_looked_at() -> None:
    assert len(ProviderError.from_response(400, {"message": "x" * 10**6}).message) < 10_000
    assert len(ProviderError.from_response(400, "x" * 10**6).message) < 10_000


def test_a_bare_text_is_the_message() -> None:
    assert ProviderError.from_response(400, {"error": "model is loading"}).message == "model is loading"
    assert ProviderError.from_response(400, "model is loading").message == "model is loading"
