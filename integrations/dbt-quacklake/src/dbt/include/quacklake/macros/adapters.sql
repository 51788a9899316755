{# -- relations ---------------------------------------------------------------------------------------------------- #}

{% macro quacklake__make_temp_relation(base_relation, suffix) %}
    {{ return(adapter.temporary(base_relation, suffix ~ modules.datetime.datetime.now().strftime("%H%M%S%f"))) }}
{% endmacro %}

{% macro quacklake__get_columns_in_relation(relation) %}
  {{ return(adapter.get_columns_in_relation(relation)) }}
{% endmacro %}

{% macro quacklake__create_table_as(temporary, relation, compiled_code, language='sql') -%}
  {%- set contract = config.get('contract') -%}
  {%- set partitioned = config.get('partitioned_by') -%}
  {%- set sorted = config.get('sorted_by') -%}
  {{ config.get('sql_header') or '' }}
  {% if temporary -%}
    create temporary table {{ adapter.quote(relation.identifier) }} as (
      {{ compiled_code }}
    )
  {%- elif contract and contract.enforced -%}
    {{ get_assert_columns_equivalent(compiled_code) }}
    create or replace table {{ relation }} {{ get_table_columns_and_constraints() }}
    {%- if partitioned %} partitioned by ({{ quacklake_names(partitioned) }}){% endif %};
    {%- if sorted %} alter table {{ relation }} set sorted by ({{ quacklake_names(sorted) }});{% endif %}
    insert into {{ relation }} ({{ adapter.dispatch('get_column_names', 'dbt')() }}) (
      {{ get_select_subquery(compiled_code) }}
    )
  {%- else -%}
    create or replace table {{ relation }}
    {%- if partitioned %} partitioned by ({{ quacklake_names(partitioned) }}){% endif %} as (
      {{ compiled_code }}
    )
  {%- endif %}
{%- endmacro %}

{% macro quacklake_names(names) -%}
  {{ names if names is string else names | join(', ') }}
{%- endmacro %}

{% macro quacklake__create_view_as(relation, sql) -%}
  {%- set contract = config.get('contract') -%}
  {{ config.get('sql_header') or '' }}
  {%- if contract and contract.enforced %}{{ get_assert_columns_equivalent(sql) }}{% endif %}
  create or replace view {{ relation }} as (
    {{ sql }}
  )
{%- endmacro %}

{% macro quacklake__drop_relation(relation) -%}
  {% call statement('drop_relation', auto_begin=False) -%}
    drop {{ relation.type | replace('_', ' ') }} if exists {{ relation.render() }}
  {%- endcall %}
{% endmacro %}

{% macro quacklake__get_drop_sql(relation) -%}
  drop {{ relation.type | replace('_', ' ') }} if exists {{ relation.render() }}
{%- endmacro %}

{% macro quacklake__rename_relation(from_relation, to_relation) -%}
  {% call statement('rename_relation') -%}
    alter {{ from_relation.type or 'table' }} {{ from_relation.render() }} rename to {{ adapter.quote(to_relation.identifier) }}
  {%- endcall %}
{% endmacro %}

{% macro quacklake__truncate_relation(relation) -%}
  {% call statement('truncate_relation') -%}
    delete from {{ relation.render() }}
  {%- endcall %}
{% endmacro %}

{% macro quacklake__alter_relation_add_remove_columns(relation, add_columns, remove_columns) %}
  {% for column in add_columns or [] %}
    {% do run_query("alter table " ~ relation.render() ~ " add column " ~ adapter.quote(column.name) ~ " " ~ column.data_type) %}
  {% endfor %}
  {% for column in remove_columns or [] %}
    {% do run_query("alter table " ~ relation.render() ~ " drop column " ~ adapter.quote(column.name)) %}
  {% endfor %}
{% endmacro %}

{% macro quacklake__alter_column_type(relation, column_name, new_column_type) -%}
  {% do adapter.change_type(relation, adapter.quote(column_name), adapter.quote(column_name ~ '__dbt_alter'), new_column_type) %}
{% endmacro %}

{# -- documentation ------------------------------------------------------------------------------------------------ #}

{% macro quacklake_text(text) -%}
  '{{ text | replace("'", "''") }}'
{%- endmacro %}

{% macro quacklake__alter_relation_comment(relation, comment) -%}
  comment on {{ 'view' if relation.is_view else 'table' }} {{ relation.render() }} is {{ quacklake_text(comment) }}
{%- endmacro %}

{% macro quacklake__alter_column_comment(relation, column_dict) -%}
  {% if relation.is_view and not adapter.views_have_column_comments() %}
    {% do exceptions.warn("the columns of the view " ~ relation ~ " get no comments, which need version 1.1 of the format") %}
  {% else %}
    {% for name in column_dict %}
      comment on column {{ relation.render() }}.{{ adapter.quote(column_dict[name]['name']) }} is {{ quacklake_text(column_dict[name]['description']) }};
    {% endfor %}
  {% endif %}
{%- endmacro %}

{% macro quacklake__get_catalog(information_schema, schemas) -%}
  {%- set kept = adapter.materialized_views() -%}
  {%- call statement('catalog', fetch_result=True) -%}
    select
      c.table_catalog as table_database, c.table_schema, c.table_name,
      case when lower(c.table_schema || '.' || c.table_name) in ({% for name in kept %}{{ quacklake_text(name) }}, {% endfor %}'')
        then 'MATERIALIZED VIEW' else t.table_type end as table_type,
      t.table_comment as table_comment, c.column_name, c.ordinal_position as column_index,
      c.data_type as column_type, c.column_comment as column_comment, null::varchar as table_owner
    from information_schema.columns as c
    join information_schema.tables as t using (table_catalog, table_schema, table_name)
    where c.table_catalog = 'lake'
      and lower(c.table_schema) in ({% for schema in schemas %}lower({{ quacklake_text(schema) }}){{ ', ' if not loop.last }}{% endfor %})
    order by 2, 3, 7
  {%- endcall -%}
  {{ return(load_result('catalog').table) }}
{%- endmacro %}

{# -- grants ------------------------------------------------------------------------------------------------------- #}

{% macro quacklake__copy_grants() %}
  {{ return(False) }}
{% endmacro %}

{% macro quacklake__get_show_grant_sql(relation) %}
  select grantee, privilege_type from (values
    {%- for privilege, grantee in adapter.grants_on(relation) %} ({{ quacklake_text(grantee) }}, {{ quacklake_text(privilege | lower) }}),{% endfor %} (null, null)
  ) as g (grantee, privilege_type) where grantee is not null
{% endmacro %}

{% macro quacklake__apply_grants(relation, grant_config, should_revoke=True) %}
  {% if grant_config %}
    {% do adapter.grant_as_configured(relation, grant_config, should_revoke) %}
  {% endif %}
{% endmacro %}

{# -- seeds -------------------------------------------------------------------------------------------------------- #}

{% macro quacklake__load_csv_rows(model, agate_table) %}
  {% if agate_table.rows | length == 0 %}
    {{ return('select 1 where false') }}
  {% endif %}
  {{ return(adapter.insert_rows(this, agate_table, get_seed_column_quoted_csv(model, agate_table.column_names))) }}
{% endmacro %}

{# -- time --------------------------------------------------------------------------------------------------------- #}

{% macro quacklake__current_timestamp() -%}
  now()
{%- endmacro %}

{% macro quacklake__snapshot_string_as_time(timestamp) -%}
  {{ return("'" ~ timestamp ~ "'::timestamp") }}
{%- endmacro %}

{% macro quacklake__snapshot_get_time() -%}
  {{ current_timestamp() }}::timestamp
{%- endmacro %}

{% macro at(relation, version=none, timestamp=none) -%}
  {%- if (version is none) == (timestamp is none) -%}
    {{ exceptions.raise_compiler_error("at(relation, …) takes either a version or a timestamp") }}
  {%- elif version is not none -%}
    {{ relation }} at (version => {{ version | int }})
  {%- else -%}
    {{ relation }} at (timestamp => {{ dbt_quacklake.quacklake_text(timestamp | string) }}::timestamptz)
  {%- endif -%}
{%- endmacro %}
