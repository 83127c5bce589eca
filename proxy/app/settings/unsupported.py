"""Finds the keys of a LiteLLM configuration that Stratiform does not use, and the effect on clients.

A configuration that relies on a restriction which does not hold here refuses to start. Keys that would change requests
or answers are reported at the start. Keys that change nothing are listed by ``stratiform check-config``.

Tables sort the keys by the effect of not using them. The keys are those of LiteLLM 1.109: its documented settings
(https://docs.litellm.ai/docs/proxy/config_settings), the fields of its own configuration classes, and the keys that its
proxy reads from each section. A test compares the tables with the installed package. The keys that are used are in
``proxy.app.settings.litellm_schema``.

- ``RESTRICTS``: LiteLLM would refuse requests, keys or contents that are accepted here. The text says what to do
  instead.
- ``CHANGES``: something else is sent or served than with LiteLLM. The text says what is different.
- ``HARMLESS``: the key is about logs, the user interface, LiteLLM's own database, caches, or routing between equal
  deployments. Keys with one of the prefixes are harmless, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from proxy.app.settings.litellm_schema import ENFORCED_RATES, FallbackList, ModelEntry, RetriesByError, fallbacks_in
from proxy.app.settings.schema import ConfigFile, Stratiform
from proxy.kit.messages import join, nearest
from proxy.kit.value import dataclass, replace

_KEYS = "make keys with stratiform.teams or `stratiform keys create`"
_PATHS = "which paths a client may use is not restricted beyond stratiform.teams[].models"
_GUARDRAIL = "no guardrail runs here: keep it in front of this proxy, or behind it"
_BUDGETS = "set stratiform.teams[].budgets"
_RATES_ADVICE = "set requests_per_minute and tokens_per_minute in stratiform.teams"
_ENFORCED = "router_settings.optional_pre_call_checks: [enforce_model_rate_limits] makes it one"
_UPLOADS = "uploads are bounded by size alone"
_TEAM = "name the model in stratiform.teams[].models of those who may use it, and give all other teams a list, too"


def _names(keys: str) -> frozenset[str]:
    return frozenset(keys.split())


def _all(text: str, keys: str) -> dict[str, str]:
    return dict.fromkeys(keys.split(), text)


RESTRICTS: Mapping[str, Mapping[str, str]] = {
    "": _all(_GUARDRAIL, "guardrails policies policy_attachments"),
    "general_settings": {
        **_all(
            _KEYS,
            "custom_auth custom_auth_run_common_checks enable_jwt_auth litellm_jwtauth enable_oauth2_auth "
            "enable_oauth2_proxy_auth oauth2_config_mappings role_permissions enforce_rbac custom_sso "
            "custom_ui_sso_sign_in_handler custom_key_generate custom_key_update custom_key_policy "
            "custom_team_metadata_validate key_management_system key_management_settings use_google_kms "
            "use_azure_key_vault database_url database_type service_account_settings self_serve_budget_policy",
        ),
        **_all(_PATHS, "allowed_routes admin_only_routes public_routes"),
        "block_robots": "restrict addresses in front of this proxy",
        **_all(
            "no member of a body is asked for or refused here",
            "enforce_user_param enforced_params reject_clientside_metadata_tags missing_session_id",
        ),
        **_all("give keys a `user` in stratiform.teams[].keys", "user_header_name user_header_mappings"),
        **_all(
            _RATES_ADVICE,
            "max_parallel_requests global_max_parallel_requests max_in_flight_requests_per_worker "
            "max_queued_requests_per_worker fail_closed_rate_limit_enforcement",
        ),
        **_all(
            _BUDGETS,
            "max_budget budget_duration fail_closed_budget_enforcement apply_user_budget_to_team_keys",
        ),
        "max_request_size_mb": "set stratiform.limits.max_body_mib",
        "max_response_size_mb": "answers are not bounded by size",
        **_all(
            _UPLOADS,
            "max_file_size_mb max_batch_file_size_mb max_batch_file_records max_batch_file_uploads_per_day "
            "max_file_downloads_per_minute allowed_file_extensions blocked_file_extensions",
        ),
        **_all(
            "objects of the provider are kept apart by team, not by LiteLLM's permissions",
            "vector_store_deny_by_default search_tool_deny_by_default agent_access_default_deny",
        ),
        "enforce_fallback_model_access": "fallbacks must be allowed by a key's list: set stratiform.teams[].models",
        "plugins": "LiteLLM's plugins do not run here",
    },
    "litellm_settings": {
        **_all(
            _GUARDRAIL,
            "guardrails guardrail_name_config_map pre_call_rules post_call_rules banned_keywords_list "
            "blocked_user_list llamaguard_model_name llamaguard_unsafe_content_categories "
            "openai_moderations_model_name presidio_ad_hoc_recognizers google_moderation_confidence_threshold "
            "llm_guard_mode output_parse_pii presidio_logging_only",
        ),
        **_all(
            _BUDGETS,
            "default_soft_budget budget_exceeded_throttle_percentage max_user_budget "
            "max_internal_user_budget default_max_internal_user_budget internal_user_budget_duration "
            "max_end_user_budget max_end_user_budget_id tag_budget_config",
        ),
        **_all(
            _KEYS,
            "upperbound_key_generate_params default_key_generate_params key_generation_settings "
            "default_internal_user_params default_team_params default_team_settings validate_end_user_id_in_db "
            "personal_key_model_access_from_teams",
        ),
        **_all(_RATES_ADVICE, "max_parallel_requests priority_reservation priority_reservation_settings"),
        "block_requests_for_models_without_pricing": "give teams a hard budget in USD: it refuses such models",
        "require_auth_for_metrics_endpoint": "set stratiform.metrics.key",
        "require_managed_files": "objects of the provider are kept apart by team, not by LiteLLM's file ids",
    },
    "router_settings": {
        "enable_tag_filtering": _TEAM,
        "guardrail_list": _GUARDRAIL,
        "provider_budget_config": "set budgets with `scope: model` in stratiform.teams",
        "default_max_parallel_requests": _RATES_ADVICE,
    },
    "litellm_params": {
        **_all("set budgets with `scope: model` in stratiform.teams", "max_budget budget_duration"),
        **_all(
            _RATES_ADVICE,
            "max_parallel_requests rpd tpd itpm otpm default_api_key_rpm_limit default_api_key_tpm_limit",
        ),
        "guardrails": _GUARDRAIL,
        "max_file_size_mb": _UPLOADS,
        **_all(_TEAM, "tags tag_regex"),
    },
    "model_info": {
        **_all(_TEAM, "team_id internal_router_model enable_tag_filtering tier"),
        **_all(_RATES_ADVICE, "itpm otpm"),
        "blocked": "remove the entry from model_list",
        "supported_environments": "remove the entry from model_list where the model must not be served",
        "access_windows": "access by time of day is not restricted here",
        "enforce_supported_endpoints": _PATHS,
    },
}

CHANGES: Mapping[str, Mapping[str, str]] = {
    "": {
        "prompts": "no prompt of LiteLLM's is put in front of a request",
        **_all("nothing is added to requests", "vector_store_registry"),
        **_all(
            "these paths go to the model list's deployment for every name, or the first",
            "files_settings assistant_settings finetune_settings default_vertex_config",
        ),
    },
    "general_settings": {
        "litellm_key_header_name": "keys come in the headers that stratiform documents",
        **_all(
            "clients cannot choose where a request goes",
            "allowed_client_side_s3_buckets allowed_client_side_s3_endpoint_urls",
        ),
        **_all("these paths are not served", "pass_through_endpoints use_client_credentials_pass_through_routes"),
        **_all(
            "on http a client's headers pass; its credentials, and whose account pays, with its own key alone",
            "forward_client_headers_to_llm_api forward_llm_provider_auth_headers forward_openai_org_id "
            "allow_client_side_credentials",
        ),
        **_all(
            "a request goes to the model that it names",
            "completion_model image_generation_model embedding_model moderation_model infer_model_from_keys "
            "use_team_public_model_name",
        ),
        **_all(
            "addresses in a body are the provider's to fetch; on litellm its own guard holds",
            "user_url_validation user_url_allowed_hosts provider_url_destination_allowed_hosts",
        ),
        **_all(
            "requests and answers pass as they are",
            "always_include_stream_usage include_call_id_in_error_body transcribe_media_buckets "
            "vertex_ai_pass_through_drop_anthropic_betas disable_bedrock_agent_runtime_passthrough "
            "request_tag_mappings cancel_on_disconnect",
        ),
        **_all("`/v1/models` lists the names of model_list", "return_wildcard_routes model_list_healthy_only"),
    },
    "litellm_settings": {
        **_all(
            "no member of a request is changed: set it at the model (litellm_params), on the litellm transport",
            "modify_params max_tokens add_function_to_prompt overwrite_user_with_key_hash "
            "openai_system_messages_first enable_anthropic_prompt_caching anthropic_prompt_caching_ttl "
            "route_all_chat_openai_to_responses reasoning_auto_summary reasoning_effort_rounding "
            "enable_gemini_default_thinking_level_low gemini_include_thoughts_default disable_stop_sequence_limit "
            "disable_add_transform_inline_image_block disable_copilot_system_to_assistant custom_prompt_dict "
            "disable_add_prefix_to_prompt bedrock_neutralize_orphaned_tool_blocks vertex_ai_safety_settings "
            "disable_anthropic_gemini_context_caching_transform network_mock responses",
        ),
        "enable_json_schema_validation": "answers are not checked against a schema",
        **_all(
            "no tool is run here: the client gets the call",
            "websearch_interception_params code_interpreter_interception_params",
        ),
        **_all(
            "set it at the model: litellm_params",
            "api_base api_key baseten_key headers api_version organization project vertex_project vertex_location "
            "use_litellm_proxy enable_model_config_credential_overrides",
        ),
        **_all(
            "no header is added for this",
            "add_user_information_to_llm_headers forward_traceparent_to_llm_provider bedrock_request_metadata_fields "
            "filter_invalid_headers model_group_settings",
        ),
        **_all(
            "no prompt of LiteLLM's is put in front of a request",
            "global_prompt_directory global_bitbucket_config global_gitlab_config prompt_name_config_map",
        ),
        **_all(
            "addresses in a body are the provider's to fetch; on litellm its own guard holds",
            "user_url_validation user_url_allowed_hosts provider_url_destination_allowed_hosts",
        ),
        **_all(
            "TLS and outgoing proxies follow the environment",
            "ssl_verify ssl_certificate ssl_security_level ssl_ecdh_curve proxy_auth",
        ),
        **_all("use router_settings.model_group_alias", "model_alias_map custom_provider_map"),
        **_all(
            "such a failure is the answer; use fallbacks for all others",
            "content_policy_fallbacks model_fallbacks",
        ),
    },
    "router_settings": {
        "default_litellm_params": "set it at each model: litellm_params",
        **_all(
            "only the context window is checked before a call, by router_settings.enable_pre_call_checks",
            "enable_pre_call_check optional_pre_call_checks fallback_on_unsupported_params",
        ),
        **_all("deployments are not chosen by tags", "tag_filtering_match_any tag_routing_prefix"),
        **_all(
            "such a failure is the answer; use fallbacks for all others",
            "content_policy_fallbacks",
        ),
        "stream_timeout": "use timeout",
    },
    "litellm_params": {
        **_all("is a weight among the entries of one name, and no limit: " + _ENFORCED, "rpm tpm"),
        "configurable_clientside_auth_params": "clients cannot choose where a request goes",
    },
    "model_info": {
        **_all("is no limit: " + _ENFORCED, "rpm tpm"),
        "hidden": "the model is listed by `/v1/models` for everyone who may use it",
        **_all("use model_name", "team_public_model_name member_auto_router"),
        "discoverable": "the model is listed by `/v1/models` for everyone who may use it",
        "allow_fail_open": "nothing is checked that could fail open",
    },
}

HARMLESS: Mapping[str, frozenset[str]] = {
    "": _names(
        "agent_list agents callback_settings litellm_license mcp_servers mcp_tools sandbox_tools search_tools "
        "worker_registry"
    ),
    "general_settings": _names(
        "admission_queue_timeout_seconds allow_cli_sso_verification_uri_complete allow_public_health_readiness_details "
        "allow_requests_on_db_unavailable allow_unmanaged_response_ids allow_user_auth auto_redirect_ui_login_to_sso "
        "claude_code_gateway_managed_settings claude_code_marketplace_auth_required control_plane_url "
        "coordination_redis dangerously_permit_weak_or_unset_master_key database_args default_team_disabled "
        "drain_endpoint_token expose_fallback_errors_to_caller hide_default_credentials_hint litellm_license otel "
        "pass_through_request_timeout passthrough_managed_object_ids responses_websocket_session_limit_seconds "
        "scheduled_job_stagger search_tools skill_scanner store_model_in_db store_prompts_in_spend_logs "
        "supported_db_objects token_rate_limit_type tracing track_unmanaged_batch_cost trusted_proxy_ranges "
        "ui_access_mode use_redis_transaction_buffer use_shared_health_check use_spend_logs_ledger "
        "use_spend_logs_partitioning use_x_forwarded_for "
        "user_api_key_cache_max_size user_api_key_cache_ttl user_mcp_management_mode "
        "require_end_user_mcp_access_defined require_key_mcp_access_defined "
        "skip_batch_input_file_rate_limiting_for_models skip_batch_input_file_rate_limiting_for_providers"
    ),
    "litellm_settings": _names(
        "aclient_session adapters agent_search_embedding_model aiohttp_trust_env allow_dynamic_callback_disabling "
        "apply_search_free_tier argilla_batch_size argilla_transformation_object "
        "anthropic_messages_estimate_initial_input_tokens anthropic_sse_ping_interval_seconds "
        "batch_line_item_callbacks audit_log_callbacks budget_exceeded_status_code budget_reset_time budget_rollover "
        "caching callback_settings callbacks client_session cold_storage_custom_logger "
        "cost_discount_config cost_margin_config scim_admin_group scim_upsert_user "
        "credential_list disable_hf_tokenizer_download email error_logs expose_router_debug_in_errors "
        "extra_spend_tag_headers force_ipv4 force_redis_hash_tag_grouping gcs_pub_sub_use_v1 gemini_live_defer_setup "
        "generic_api_use_v1 generic_logger_headers global_disable_no_log_param http2 in_memory_llm_clients_cache "
        "include_cost_in_streaming_usage initialized_langfuse_clients json_logs key_alias_pattern "
        "langfuse_default_tags langfuse_enable_update_trace_keys langsmith_batch_size logged_real_time_event_types "
        "logging longer_context_model_fallback_dict max_fallbacks max_ui_session_budget models_by_provider "
        "num_retries_per_request otel_tenant_destination_mode predibase_tenant_id redact_messages_in_exceptions "
        "redact_user_api_key_info request_correlation_in_logs "
        "return_response_headers safe_memory_mode secret_manager_client set_verbose skill_search_embedding_model "
        "skip_system_message_in_guardrail skip_tool_message_in_guardrail sse_keepalive_ping_interval_seconds "
        "standard_logging_payload_excluded_fields store_audit_logs strip_anthropic_total_tokens suppress_debug_info "
        "suppress_startup_output token turn_off_message_logging use_aiohttp_transport use_client "
        "use_chat_completions_url_for_anthropic_messages vector_store_index_registry vector_store_registry "
        "vector_store_search_failure_mode"
    ),
    "router_settings": _names(
        "alerting_config allowed_fails_policy assistants_config caching_groups client_ttl debug_level default_priority "
        "deployment_affinity_ttl_seconds ignore_invalid_deployments max_fallbacks max_retries "
        "model_group_affinity_config polling_interval router_general_settings "
        "routing_groups routing_strategy routing_strategy_args search_tools set_verbose weights"
    ),
    "litellm_params": _names(
        "allow_client_keepalive_override keepalive_seconds litellm_trace_id max_retries model_info num_retries "
        "use_in_pass_through cooldown_time id"
    ),
    "model_info": _names(
        "key model db_model litellm_params litellm_provider original_model_id direct_access access_via_team_ids "
        "created_at created_by updated_at updated_by type description display_name custom_tags custom_metadata "
        "deprecation_date successor_model disable_background_health_check litellm_routing_preferences "
        "max_output_tokens max_embedding_batch_size supported_endpoints supported_openai_params custom_tokenizer "
        "tiered_pricing off_peak_pricing pricing_provider web_search_billing_unit search_free_requests ptu_count "
        "ptu_shares ptu_effective_from ptu_effective_to cost_per_ptu_per_hour"
    ),
}

HARMLESS_PREFIXES: Mapping[str, tuple[str, ...]] = {
    "": (),
    "general_settings": (
        "accounting_", "alert", "background_health_check", "database_", "disable_", "enable_", "failed_login_",
        "health_check_", "max_failed_login_", "maximum_", "mcp_", "password_policy_", "proxy_b", "proxy_config_reload",
        "spend_", "team_metadata_",
    ),
    "litellm_settings": (
        "aws_sqs_", "cache", "common_cloud_", "custom_prometheus_", "datadog_", "default_in_memory_",
        "default_key_max_budget_alert", "default_redis_", "disable_", "dynamodb_", "enable_", "failure_callback",
        "input_callback", "log_", "mcp_", "newrelic_", "pointfive_", "prometheus_", "public_", "s3_",
        "service_callback", "success_callback", "zerobus_",
    ),
    "router_settings": ("cache_", "redis_"),
    "litellm_params": (),
    "model_info": ("health_check_", "supports_", "input_cost_", "output_cost_", "cache_read_"),
}  # fmt: skip
# Addresses of catalogues that litellm would fetch; keys of providers, which belong to the model.
HARMLESS_SUFFIXES: Mapping[str, tuple[str, ...]] = {"litellm_settings": ("_url",)}
CHANGES_SUFFIXES: Mapping[str, Mapping[str, str]] = {
    "litellm_settings": {suffix: "set api_key at the model: litellm_params" for suffix in ("_key", "_api_base")},
}

LOGGING_CALLBACKS = _names(
    "lago openmeter logfire literalai langsmith prometheus otel datadog datadog_metrics datadog_llm_observability "
    "datadog_cost_management galileo braintrust arize arize_phoenix langtrace gcs_bucket azure_storage opik argilla "
    "mlflow langfuse langfuse_otel weave_otel pagerduty humanloop azure_sentinel gcs_pubsub agentops generic_api "
    "resend_email sendgrid_email smtp_email deepeval s3 s3_v2 clickhouse pointfive zerobus aws_sqs cloudzero focus "
    "mavvrik vantage ternary posthog levo newrelic signoz sentry helicone promptlayer lunary athena athina traceloop "
    "wandb supabase slack dynamodb greenscale logfire_otel batch_redis_requests"
)
"""Callbacks that only log: without them, requests are the same."""
CHANGING_CALLBACKS = _names(
    "anthropic_cache_control_hook vector_store_pre_call_hook dotprompt bitbucket gitlab compression_interception "
    "websearch_interception code_interpreter_interception litellm_agent"
)
"""Callbacks that edit the sent request."""


IGNORE_FLAG = "--ignore-unsupported"
# Sections that have no names of a provider's or an operator's own.
_OPEN_SECTIONS = ("", "general_settings", "litellm_settings", "router_settings")
# The keys that restrict clients here, too, with their paths.
_HONOURED = {
    "master_key": "general_settings.master_key",
    "allowed_ips": "general_settings.allowed_ips",
    "max_budget": "litellm_settings.max_budget",
    "budget_duration": "litellm_settings.budget_duration",
    "teams": "stratiform.teams",
}
_NEVER_REPEATED = frozenset(
    {
        "BadRequestErrorRetries",
        "AuthenticationErrorRetries",
        "ContentPolicyViolationErrorRetries",
        "NotFoundErrorRetries",
    }
)


class Effect(StrEnum):
    """The effect of a key that is not used."""

    HARMLESS = "harmless"
    """Clients may do neither more nor less, and nothing else is sent."""
    UNKNOWN = "unknown"
    """The key is not known as a key of LiteLLM."""
    CHANGES = "changes"
    """Something else is sent or served than with LiteLLM."""
    RESTRICTS = "restricts"
    """LiteLLM would refuse something that is accepted here."""


_CONSEQUENCES = (Effect.RESTRICTS, Effect.CHANGES)
_TOLD = {
    Effect.HARMLESS: "is not used by Stratiform",
    Effect.UNKNOWN: "is not known, and not used by Stratiform",
    Effect.CHANGES: "is not honoured by Stratiform",
    Effect.RESTRICTS: "restricts what clients may do, and Stratiform does not honour it",
}


@dataclass(frozen=True, slots=True)
class Unused:
    """A key with its path, and the effect of not using it."""

    path: str
    effect: Effect
    note: str = ""

    def __str__(self) -> str:
        sign = ":" if self.effect in _CONSEQUENCES else ";"
        return f"{self.path}: {_TOLD[self.effect]}" + (f"{sign} {self.note}" if self.note else "")


def effect_of(section: str, key: str) -> tuple[Effect, str]:
    """The effect of an unused key of a section (``""``: the file itself), and what to do."""
    for effect, table in ((Effect.RESTRICTS, RESTRICTS), (Effect.CHANGES, CHANGES)):
        if (note := table.get(section, {}).get(key)) is not None:
            return effect, note
    if key in HARMLESS[section]:
        return Effect.HARMLESS, ""
    is_open = section in _OPEN_SECTIONS
    restricting = {name: join(section, name) for name in RESTRICTS[section]} | _HONOURED
    # This comes before the ends that many harmless names share: if the name means a key that restricts clients, in this
    # section or in another one, they could do more than the operator thinks.
    if is_open and (close := nearest(key, restricting)):
        return Effect.RESTRICTS, f"did you mean `{restricting[close]}`?"
    if key.startswith(HARMLESS_PREFIXES[section]) or key.endswith(HARMLESS_SUFFIXES.get(section, ())):
        return Effect.HARMLESS, ""
    for suffix, note in CHANGES_SUFFIXES.get(section, {}).items():
        if key.endswith(suffix):
            return Effect.CHANGES, note
    return Effect.UNKNOWN, _meant(section, key) if is_open else ""


def _meant(section: str, key: str) -> str:
    """The key that is used here and that an unknown name probably means."""
    owner = ConfigFile.model_fields[section].annotation if section else Stratiform
    close = nearest(key, getattr(owner, "model_fields", {}))
    return f"did you mean `{join(section or 'stratiform', close)}`?" if close else ""


def unused(file: ConfigFile, *, names_keys: bool) -> Iterator[Unused]:
    """The keys of the file that are not used. ``names_keys``: the configuration names keys of clients, so other keys
    are refused."""
    for key, value in (file.model_extra or {}).items():
        yield _found("", key, value, key)
    for section in ("general_settings", "litellm_settings", "router_settings"):
        for key, value in (getattr(file, section).model_extra or {}).items():
            yield from _special(section, key, value, names_keys=names_keys)
    if file.litellm_settings.max_budget and file.stratiform.teams:
        # It would hold for all teams together, but here each team's money is counted separately.
        yield Unused("litellm_settings.max_budget", Effect.RESTRICTS, "set stratiform.teams[].budgets")
    checks = file.router_settings.optional_pre_call_checks or []
    yield from _of_checks(checks, has_teams=bool(file.stratiform.teams))
    yield from _of_retries(file.router_settings.retry_policy, "retry_policy")
    for name, given in (file.router_settings.model_group_retry_policy or {}).items():
        yield from _of_retries(given, join("model_group_retry_policy", name))
    for section in ("router_settings", "litellm_settings"):
        for key in ("fallbacks", "context_window_fallbacks"):
            yield from _of_fallbacks(f"{section}.{key}", getattr(getattr(file, section), key))
    for index, entry in enumerate(file.model_list):
        yield from _of_entry(entry, f"model_list[{index}]", enforces_rates=ENFORCED_RATES in checks)


def unused_on_http(entry: ModelEntry, path: str) -> Iterator[Unused]:
    """Parameters of a deployment that only the litellm transport would apply."""
    for key, value in (entry.litellm_params.model_extra or {}).items():
        is_price = key.endswith(("_cost_per_token", "_token_cost")) or "_cost_" in key or "_cost_per_" in key
        is_told = effect_of("litellm_params", key)[1] or nearest(key, type(entry.litellm_params).model_fields)
        if _is_unset(value) or is_price or key == "drop_params" or is_told:
            continue
        if key not in HARMLESS["litellm_params"]:
            note = "is not sent on the http transport; clients must send it, or use `model_info.transport: litellm`"
            yield Unused(join(f"{path}.litellm_params", key), Effect.CHANGES, note)


def _of_checks(checks: Sequence[str], *, has_teams: bool) -> Iterator[Unused]:
    path = "router_settings.optional_pre_call_checks"
    if ENFORCED_RATES in checks and has_teams:
        # The limits would hold for all teams together, but here each team's requests are counted separately.
        yield Unused(path, Effect.RESTRICTS, "set requests_per_minute and tokens_per_minute in stratiform.teams")
    elif "router_budget_limiting" in checks:
        yield Unused(path, Effect.RESTRICTS, "set budgets with `scope: model` in stratiform.teams")
    elif others := [check for check in checks if check != ENFORCED_RATES]:
        yield _found("router_settings", "optional_pre_call_checks", others, path)


def _of_retries(given: RetriesByError | None, key_path: str) -> Iterator[Unused]:
    for key, value in ((given.model_extra or {}) if given is not None else {}).items():
        path = join(f"router_settings.{key_path}", key)
        if key not in _NEVER_REPEATED:
            yield Unused(path, Effect.UNKNOWN)
        elif value:
            yield Unused(path, Effect.CHANGES, "such a refusal is the answer: it is not repeated")


def _of_fallbacks(path: str, given: FallbackList | None) -> Iterator[Unused]:
    """The keys of a fallback's long form that would change the request."""
    note = "the request goes to the fallback as it is: use a model of its own"
    for _, targets in fallbacks_in(path, given):
        for at, target in targets.items():
            for key in (target.model_extra or {}) if not isinstance(target, str) else ():
                yield Unused(join(at, key), Effect.CHANGES, note)


def _of_entry(entry: ModelEntry, path: str, *, enforces_rates: bool) -> Iterator[Unused]:
    for key in entry.model_extra or {}:
        yield Unused(join(path, key), Effect.UNKNOWN)
    for name, part in (("litellm_params", entry.litellm_params), ("model_info", entry.model_info)):
        rates = {} if enforces_rates else {rate: getattr(part, rate) for rate in ("rpm", "tpm")}
        for key, value in {**rates, **(part.model_extra or {})}.items():
            found = _found(name, key, value, f"{path}.{name}.{key}")
            if found.effect in _CONSEQUENCES:
                yield found
            elif found.effect is Effect.UNKNOWN and key != "model" and (close := nearest(key, type(part).model_fields)):
                yield replace(found, note=f"did you mean `{close}`?")


def _special(section: str, key: str, value: object, *, names_keys: bool) -> Iterator[Unused]:
    path = f"{section}.{key}"
    match section, key:
        case "litellm_settings", "callbacks":
            yield from _callbacks(value, path)
        case "general_settings", "database_url" if names_keys:
            # A client with a key of that database is refused, so nobody may do more than before.
            yield Unused(path, Effect.CHANGES, "keys live in this proxy's own store, and not in that database")
        case "litellm_settings", "default_team_settings" if _only_logs(value):
            yield Unused(path, Effect.HARMLESS)
        case _:
            yield _found(section, key, value, path)


def _only_logs(teams: object) -> bool:
    """Whether LiteLLM's settings for each team id only say where the team's requests are logged."""
    keys = [key for team in teams if isinstance(team, Mapping) for key in team] if isinstance(teams, list) else [""]
    loggers = tuple(f"{name}_" for name in LOGGING_CALLBACKS)
    return all(key == "team_id" or key.endswith("_callback") or key.startswith(loggers) for key in map(str, keys))


def _callbacks(value: object, path: str) -> Iterator[Unused]:
    """Each callback by its name: loggers, hooks that edit requests, and all others, which may refuse them."""
    names = [str(item) for item in value] if isinstance(value, list | Mapping) else [str(value)]
    for index, name in enumerate(names):
        if name in CHANGING_CALLBACKS:
            yield Unused(join(path, index), Effect.CHANGES, f"`{name}` does not run here")
        elif name not in LOGGING_CALLBACKS:
            note = "no guardrail or handler of LiteLLM's runs here: keep it in front of this proxy, or behind it"
            yield Unused(join(path, index), Effect.RESTRICTS, note)
    if LOGGING_CALLBACKS.issuperset(names):
        yield Unused(path, Effect.HARMLESS)


def _found(section: str, key: str, value: object, path: str) -> Unused:
    effect, note = effect_of(section, key)
    if effect in _CONSEQUENCES and _is_unset(value):
        return Unused(path, Effect.HARMLESS)
    return Unused(path, effect, note)


def _is_unset(value: object) -> bool:
    """Whether a value is empty or switched off. A limit of 0 is a limit."""
    return value is None or value is False or value in ("", [], {})
