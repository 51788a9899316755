{# Functions that DuckDB names differently. #}

{# A text is no moment for DuckDB. #}
{% macro quacklake_moment(value) -%}
  {{ value }}{{ '::timestamp' if (value | string | trim).startswith("'") and (value | string | trim).endswith("'") }}
{%- endmacro %}

{% macro quacklake__date(year, month, day) -%}
  make_date({{ year }}, {{ month }}, {{ day }})
{%- endmacro %}

{% macro quacklake__dateadd(datepart, interval, from_date_or_timestamp) -%}
  ({{ quacklake_moment(from_date_or_timestamp) }} + (interval '1 {{ datepart }}') * ({{ interval }}))
{%- endmacro %}

{% macro quacklake__datediff(first_date, second_date, datepart) -%}
  {%- if datepart | lower == 'week' -%}
  (date_diff('day', date_trunc('week', {{ first_date }}::timestamp), date_trunc('week', {{ second_date }}::timestamp)) // 7)
  {%- else -%}
  date_diff('{{ datepart }}', {{ first_date }}::timestamp, {{ second_date }}::timestamp)
  {%- endif -%}
{%- endmacro %}

{% macro quacklake__last_day(date, datepart) -%}
  (date_trunc('{{ datepart }}', {{ date }}) + interval '1 {{ datepart }}' - interval '1 day')::date
{%- endmacro %}

{% macro quacklake__listagg(measure, delimiter_text, order_by_clause, limit_num) -%}
  {%- if limit_num -%}
    array_to_string((array_agg({{ measure }} {{ order_by_clause or '' }}))[1:{{ limit_num }}], {{ delimiter_text }})
  {%- else -%}
    string_agg({{ measure }}, {{ delimiter_text }} {{ order_by_clause or '' }})
  {%- endif -%}
{%- endmacro %}

{% macro quacklake__safe_cast(field, type) -%}
  try_cast({{ field }} as {{ type }})
{%- endmacro %}

{% macro quacklake__split_part(string_text, delimiter_text, part_number) -%}
  split_part({{ string_text }}, {{ delimiter_text }}, {{ part_number }})
{%- endmacro %}
