{% materialization incremental, adapter='quacklake', supported_languages=['sql'] %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='table') -%}
  {%- set anew = existing is none or existing.type != 'table' or should_full_refresh() -%}
  {%- set on_schema_change = incremental_validate_on_schema_change(config.get('on_schema_change'), default='ignore') -%}
  {%- set strategy = adapter.get_incremental_strategy_macro(context, config.get('incremental_strategy') or 'default') -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% if anew %}
    {% do drop_if_other_type(existing, 'table') %}
    {% set build = get_create_table_as_sql(False, target, sql) %}
  {% else %}
    {% set rows = make_temp_relation(target) %}
    {% do run_query(get_create_table_as_sql(True, rows, sql)) %}
    {% set columns = process_schema_changes(on_schema_change, rows, existing) or adapter.get_columns_in_relation(existing) %}
    {% set predicates = config.get('predicates', none) or config.get('incremental_predicates', none) %}
    {% set build = strategy({'target_relation': target, 'temp_relation': rows, 'unique_key': config.get('unique_key'), 'dest_columns': columns, 'incremental_predicates': predicates}) %}
  {% endif %}

  {% call statement('main') %}
    {{ build }}
  {% endcall %}

  {% do apply_grants(target, config.get('grants'), should_revoke=should_revoke(existing, anew)) %}
  {% do persist_docs(target, model) %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ adapter.commit() }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% macro quacklake__get_incremental_default_sql(arg_dict) %}
  {{ return(get_incremental_merge_sql(arg_dict) if arg_dict['unique_key'] else get_incremental_append_sql(arg_dict)) }}
{% endmacro %}

{% macro quacklake__get_incremental_microbatch_sql(arg_dict) %}
  {%- set time = adapter.quote(model.config.event_time) -%}
  {%- set start = quacklake_text(model.batch.event_time_start | string) -%}
  {%- set end = quacklake_text(model.batch.event_time_end | string) -%}
  {%- set columns = get_quoted_csv(arg_dict['dest_columns'] | map(attribute='name')) -%}
  delete from {{ arg_dict['target_relation'] }} where {{ time }} >= {{ start }} and {{ time }} < {{ end }};
  insert into {{ arg_dict['target_relation'] }} ({{ columns }}) (select {{ columns }} from {{ arg_dict['temp_relation'] }})
{% endmacro %}
