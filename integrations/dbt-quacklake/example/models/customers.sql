{{ config(materialized='table') }}

select c.id as customer_id, c.first_name, c.last_name,
       min(o.ordered_on) as first_order, count(o.order_id) as orders, coalesce(sum(o.amount), 0) as spent
from {{ ref('raw_customers') }} as c
left join {{ ref('orders') }} as o on o.customer_id = c.id
group by all
