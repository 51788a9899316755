{# A table is replaced by one commit: readers see the old rows or the new ones. #}
{% materialization table, adapter='quacklake', supported_languages=['sql'] %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='table') -%}
  {%- set grants = config.get('grants') -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% if config.get('engine', 'duckdb') == 'spark' %}
    {% do adapter.end_transaction() %}
    {% do drop_if_other_type(existing, 'table') %}
    {% do adapter.create_on_spark(target, sql) %}
    {% call noop_statement('main', 'OK', 'OK') %}{{ sql }}{% endcall %}
  {% else %}
    {% do drop_if_other_type(existing, 'table') %}
    {% call statement('main') -%}
      {{ get_create_table_as_sql(False, target, sql) }}
    {%- endcall %}
    {% if config.get('sorted_by') and not (config.get('contract') and config.get('contract').enforced) %}
      {% do run_query("alter table " ~ target ~ " set sorted by (" ~ quacklake_names(config.get('sorted_by')) ~ ")") %}
    {% endif %}
  {% endif %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do apply_grants(target, grants, should_revoke=should_revoke(existing, full_refresh_mode=True)) %}
  {% do persist_docs(target, model) %}
  {{ adapter.commit() }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{# Drop what has the name of a model but another type. A materialized view is dropped before the transaction begins. #}
{% macro drop_if_other_type(existing, type) %}
  {% if existing is not none and existing.type != type %}
    {% if existing.is_materialized_view %}
      {% do adapter.end_transaction() %}
    {% endif %}
    {{ adapter.drop_relation(existing) }}
  {% endif %}
{% endmacro %}
