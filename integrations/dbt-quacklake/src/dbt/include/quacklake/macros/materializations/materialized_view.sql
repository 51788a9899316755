{# A materialized view that follows its tables: a run refreshes it, a changed query replaces it. #}
{% materialization materialized_view, adapter='quacklake' %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='materialized_view') -%}
  {%- set asked = sql | trim -%}
  {%- set known = existing is not none and existing.is_materialized_view -%}
  {%- set changed = not adapter.follows(this, asked) -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% do adapter.end_transaction() %}

  {% if existing is not none and not existing.is_materialized_view %}
    {{ adapter.drop_relation(existing) }}
  {% endif %}
  {% if known and changed and not should_full_refresh() and config.get('on_configuration_change') == 'fail' %}
    {{ exceptions.raise_fail_fast_error("the query of " ~ target.render() ~ " has changed, and on_configuration_change is 'fail'") }}
  {% elif known and changed and not should_full_refresh() and config.get('on_configuration_change') == 'continue' %}
    {{ exceptions.warn("the query of " ~ target.render() ~ " has changed, and on_configuration_change is 'continue'") }}
    {% do store_raw_result(name="main", message="skip " ~ target, code="skip", rows_affected="-1") %}
  {% else %}
    {% do log("Applying " ~ ("REFRESH" if not (changed or should_full_refresh()) else "REPLACE" if known else "CREATE") ~ " to: " ~ target) %}
    {% call statement('main', auto_begin=False) -%}
      {% if changed or should_full_refresh() -%}
        create or replace materialized view {{ target }}
        {%- if config.get('refresh') %} refresh {{ config.get('refresh') }}{% endif %} as {{ asked }}
      {%- else -%}
        refresh materialized view {{ target }}
      {%- endif %}
    {%- endcall %}
    {% if changed %}{% do adapter.remember(target, asked) %}{% endif %}
  {% endif %}

  {% do apply_grants(target, config.get('grants'), should_revoke=should_revoke(existing, full_refresh_mode=changed)) %}
  {% do persist_docs(target, model) %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do adapter.end_transaction() %}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target]}) }}
{% endmaterialization %}
