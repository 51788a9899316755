{{ config(materialized='materialized_view') }}

select ordered_on, count(*) as orders, sum(amount) as revenue
from {{ ref('orders') }}
group by ordered_on
