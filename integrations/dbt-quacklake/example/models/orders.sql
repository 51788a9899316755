{{ config(materialized='incremental', unique_key='order_id', partitioned_by=['month(ordered_on)']) }}

select o.order_id, o.customer_id, o.ordered_on, o.status, sum(p.amount) as amount
from {{ ref('stg_orders') }} as o
join {{ ref('stg_payments') }} as p using (order_id)
{% if is_incremental() %}
where o.ordered_on >= (select max(ordered_on) from {{ this }})
{% endif %}
group by all
